"""`mainspring backfill` and the commands about backfills."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.sdk.wire_samples import MOMENT

from .conftest import CannedServer

Call = Callable[..., tuple[int, str, str]]
ID = "0197a6c0-7c30-7e55-9f72-a1bb23cd45ef"
RANGE = ("--from", "2025-03-01T00:00:00Z", "--to", "2025-03-01T10:00:00Z")


def view(**changes: Any) -> dict[str, Any]:
    return {
        "id": ID, "job_id": "report", "generation": 1, "state": "running", "reason": None, "from": MOMENT, "to": MOMENT,
        "order": "oldest", "concurrency": 1, "total": 10, "existing": 2, "created": 5, "running": 1, "succeeded": 3,
        "failed": 1, "cancelled": 0, "skipped": 0, "remaining": 3, "created_at": MOMENT, "updated_at": MOMENT,
        "ended_at": None, **changes,
    }  # fmt: skip


def test_it_prints_the_id_and_sends_the_range(server: CannedServer, call: Call) -> None:
    server.says("POST /v1/jobs/report:backfill", view())
    code, out, err = call("backfill", "report", *RANGE, "--concurrency", "4", "--order", "newest")
    assert (code, out) == (0, f"{ID}\n") and f"mainspring backfill show {ID} --watch" in err
    assert server.asked[-1][2] == {"from": RANGE[1], "to": RANGE[3], "concurrency": 4, "order": "newest"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [({"state": "completed", "failed": 0}, 0), ({"state": "completed"}, 1), ({"state": "cancelled", "failed": 0}, 1)],
)
def test_watching_ends_with_the_backfill_and_the_code_says_whether_all_is_well(
    server: CannedServer, call: Call, changes: dict[str, Any], code: int
) -> None:
    server.says(f"GET /v1/backfills/{ID}", view(ended_at=MOMENT, **changes))
    found, out, _ = call("backfill-status", ID, "--watch")
    assert found == code
    assert "6 of 10: 3 succeeded" in out and "2 existed before" in out


@pytest.mark.parametrize(
    ("words", "method", "path", "sent"),
    [
        (("backfill-pause",), "POST", ":pause", {}),
        (("backfill-resume",), "POST", ":resume", {}),
        (("backfill-cancel",), "POST", ":cancel", {"running": False}),
        (("backfill-cancel", "--running"), "POST", ":cancel", {"running": True}),
        (("backfill-set", "--concurrency", "8"), "PATCH", "", {"concurrency": 8}),
    ],
)
def test_a_backfill_is_changed_by_the_end_of_its_id(
    server: CannedServer, call: Call, words: tuple[str, ...], method: str, path: str, sent: dict[str, Any]
) -> None:
    server.says("GET /v1/backfills", {"backfills": [view()], "next": None})
    server.says(f"{method} /v1/backfills/{ID}{path}", view(reason="its job is paused", state="paused"))
    code, out, _ = call(words[0], "23cd45ef", *words[1:])
    assert code == 0 and "its job is paused" in out
    assert server.asked[-1][2] == sent


def test_they_are_listed(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/backfills", {"backfills": [view()], "next": None})
    code, out, _ = call("backfills", "--state", "running")
    assert code == 0 and ID in out and "6 of 10" in out
