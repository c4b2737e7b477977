"""`mainspring limit list` and `mainspring limit`, and the options of submit that declare limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mainspring.cli.option_values import concurrency_of
from mainspring.domain.errors import InvalidInput
from tests.sdk.wire_samples import MOMENT

from .conftest import CannedServer

Call = Callable[..., tuple[int, str, str]]


def limit(limit_id: int, name: str, **changes: Any) -> dict[str, Any]:
    return {
        "limit_id": limit_id, "name": name, "limit": 1, "declared": 1, "pinned": False, "order": "priority", "keys": 1,
        "in_use": 1, "held": 3, "updated_at": MOMENT, **changes,
    }  # fmt: skip


def details(shown: dict[str, Any]) -> dict[str, Any]:
    return {"limit": shown, "lines": [{"key": '"a1"', "in_use": 1, "held": 3, "runs": ["018f"]}]}


def test_a_limit_is_found_by_its_name_and_shown_with_its_lines(server: CannedServer, call: Call) -> None:
    found = [limit(7, "task:charge"), limit(8, "task:charge:payload.account")]
    server.says("GET /v1/limits", {"limits": found, "next": None})
    server.says("GET /v1/limits/7", details(found[0]))
    code, out, _ = call("limit", "task:charge")
    assert code == 0
    assert '"a1": 1 in use, 3 held (run 018f)' in out


def test_a_part_of_a_name_that_several_have_is_refused_with_their_names(server: CannedServer, call: Call) -> None:
    found = [limit(7, "task:charge"), limit(8, "task:charge:payload.account")]
    server.says("GET /v1/limits", {"limits": found, "next": None})
    code, _, err = call("limit", "charge")
    assert code == 2
    assert "task:charge, task:charge:payload.account" in err and "the whole name" in err


@pytest.mark.parametrize(("option", "shown"), [(("--set", "5"), "hand, declared 1"), (("--reset",), "declared")])
def test_a_limit_is_set_and_reset(server: CannedServer, call: Call, option: tuple[str, ...], shown: str) -> None:
    pinned = option != ("--reset",)
    server.says("PUT /v1/limits/7", details(limit(7, "task:charge", limit=5 if pinned else 1, pinned=pinned)))
    code, out, _ = call("limit", "7", *option)
    assert code == 0
    assert shown in out


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ((None, None, False), None),
        (("3", None, False), 3),
        (("1", "payload.a", False), {"limit": 1, "key": "payload.a"}),
        ((None, None, True), {"limit": 1, "order": "strict"}),
        (("1", "payload.a", True), {"limit": 1, "key": "payload.a", "order": "strict"}),
        (('{"limit": 2, "per": "task"}', None, False), {"limit": 2, "per": "task"}),
    ],
)
def test_the_options_as_a_field(given: tuple[str | None, str | None, bool], sent: Any) -> None:
    assert concurrency_of(given[0], given[1], strict=given[2]) == sent


@pytest.mark.parametrize("given", [("three", None, False), (None, "payload.a", False), ("[]", None, True)])
def test_options_that_do_not_fit_together(given: tuple[str | None, str | None, bool]) -> None:
    with pytest.raises(InvalidInput) as refused:
        concurrency_of(given[0], given[1], strict=given[2])
    assert refused.value.hint
