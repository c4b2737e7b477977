"""What is wrong with a large body is found without long work on the event loop."""

from __future__ import annotations

import difflib
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.anyio

LONG = "x" * 500_000


FILES = {"owner": "o", "objects": [{"kind": LONG, "id": "a", "body": {}}]}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/files:plan", FILES),
        ("POST", "/v1/files:apply", FILES),
        ("POST", "/v1/files:export", {"kind": LONG}),
        ("PUT", "/v1/rules/a", {"on": [LONG], "to": ["c"]}),
    ],
    ids=["plan", "apply", "export", "rule"],
)
async def test_a_name_that_is_too_long_to_be_meant_is_not_compared_with_known_ones(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: dict[str, Any]
) -> None:
    compared: list[int] = []
    set_seq2 = difflib.SequenceMatcher.set_seq2

    def noted(matcher: Any, text: Any) -> None:
        compared.append(len(text))
        set_seq2(matcher, text)

    monkeypatch.setattr(difflib.SequenceMatcher, "set_seq2", noted)
    answer = await api.request(method, path, json=body)
    assert answer.status_code == 422
    assert len(answer.content) < 10_000
    assert max(compared, default=0) <= 1000


async def test_a_declaration_with_too_many_ids_is_refused_before_they_are_checked(api: httpx.AsyncClient) -> None:
    """A megabyte of ids takes 0.3 s to check. What comes first in this body is wrong as well."""
    body = {"fingerprint": 1, "source": "a", "job_ids": ["a"] * 200_000}
    answer = await api.put("/v1/applications/a", json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, "job_ids")
    body = {"fingerprint": "a", "source": "a", "job_ids": [str(number) for number in range(10_000)]}
    assert (await api.put("/v1/applications/a", json=body)).status_code == 200
