"""`mainspring queue`, and pauses of queues and of everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import CannedServer

Call = Callable[..., tuple[int, str, str]]
GATE = {"queue": "mails", "concurrency": 50, "in_use": 3, "rate": "100/m", "burst": 20, "tokens": 7, "max_depth": None}
QUEUE = {"name": "mails", "depth": 12, "scheduled": 0, "running": 3, "oldest_seconds": 75.0, "rate": 1.5, "workers": 2,
         "paused": True, "paused_why": "queue mails is paused by ops", "limits": GATE}  # fmt: skip


def body(server: CannedServer, place: int = 0) -> Any:
    return server.asked[place][2]


def test_limits_that_are_given_are_set_and_the_queue_is_shown(server: CannedServer, call: Call) -> None:
    server.says("PUT /v1/queues/mails", GATE)
    server.says("GET /v1/queues/mails", QUEUE)
    code, out, _ = call("queue", "mails", "--concurrency", "50", "--rate", "100/m", "--burst", "20")
    assert code == 0
    assert body(server) == {"concurrency": 50, "rate": {"rate": "100/m", "burst": 20}}
    for words in ("50, 3 in use", "100/m, burst 20, 7 may start now", "no limit", "queue mails is paused by ops"):
        assert words in out


def test_none_removes_one_limit_and_no_limits_all(server: CannedServer, call: Call) -> None:
    server.says("PUT /v1/queues/mails", GATE)
    server.says("GET /v1/queues/mails", QUEUE)
    assert call("queue", "mails", "--rate", "none", "--max-depth", "9")[0] == 0
    assert body(server) == {"rate": None, "max_depth": 9}
    assert call("queue", "mails", "--no-limits")[0] == 0
    assert body(server, 2) == {"concurrency": None, "rate": None, "max_depth": None}


def test_the_tenant_has_limits_too(server: CannedServer, call: Call) -> None:
    server.says("PUT /v1/tenant/limits", GATE | {"queue": None})
    server.says("GET /v1/tenant/limits", GATE | {"queue": None})
    code, out, _ = call("queue", "--tenant", "--concurrency", "200")
    assert (code, body(server)) == (0, {"concurrency": 200})
    assert "all runs of the tenant" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["queue"], "--tenant"),
        (["queue", "mails", "--tenant"], "not both"),
        (["queue", "mails", "--concurrency", "many"], "not a number"),
        (["queue", "mails", "--burst", "3"], "--rate"),
        (["queue", "mails", "--no-limits", "--rate", "1/s"], "give none"),
        (["pause"], "--queue"),
        (["pause", "job", "--queue", "mails"], "only one"),
        (["resume", "--queue", "mails", "--all"], "only one"),
    ],
)
def test_what_makes_no_sense_is_refused(server: CannedServer, call: Call, arguments: list[str], words: str) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert server.asked == []


@pytest.mark.parametrize(
    ("arguments", "request_", "sent"),
    [
        (["pause", "--queue", "mails"], "POST /v1/queues/mails:pause", {}),
        (["resume", "--queue", "mails"], "POST /v1/queues/mails:resume", {}),
        (["pause", "--all"], "POST /v1/pause", {}),
        (["resume", "--all"], "POST /v1/resume", {}),
        (["pause", "--all-tenants"], "POST /v1/pause", {"all_tenants": True}),
    ],
)
def test_queues_and_everything_are_paused_and_resumed(
    server: CannedServer, call: Call, arguments: list[str], request_: str, sent: dict[str, bool]
) -> None:
    server.says(request_, GATE)
    code, out, _ = call(*arguments)
    assert (code, body(server)) == (0, sent)
    assert "paused" in out


def test_the_list_shows_limits_and_pauses(server: CannedServer, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    server.says("GET /v1/queues", {"queues": [QUEUE]})
    assert "paused, 3/50 at once, 100/m" in call("queues")[1]
