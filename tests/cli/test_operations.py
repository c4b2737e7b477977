"""`mainspring act` and the commands about operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.sdk.wire_samples import MOMENT

from .conftest import CannedServer

Call = Callable[..., tuple[int, str, str]]
ID = "0197a6c0-7c30-7e55-9f72-a1bb23cd45ef"


def view(**changes: Any) -> dict[str, Any]:
    return {
        "id": ID, "target": "jobs", "verb": "pause", "state": "DONE", "count": 3, "exact": True, "expected": 3,
        "done": 3, "failed": 0, "failures": [], "reason": None, "filter": {"queue": "mails"}, "requested_by": "ada",
        "created_at": MOMENT, "updated_at": MOMENT, "ended_at": MOMENT, **changes,
    }  # fmt: skip


def test_the_count_alone(server: CannedServer, call: Call) -> None:
    server.says("POST /v1/jobs:act", {"count": 3, "exact": True, "examples": ["a"]})
    assert call("act", "pause", "jobs", "queue=mails", "status=scheduled,paused", "--count")[:2] == (0, "3\n")
    chosen = {"queue": "mails", "status": ["scheduled", "paused"]}
    assert server.asked[-1][2] == {"verb": "pause", "filter": chosen, "dry_run": True}


def test_without_an_answer_nothing_is_done(server: CannedServer, call: Call) -> None:
    server.says("POST /v1/jobs:act", {"count": 3, "exact": True, "examples": []})
    code, _, err = call("act", "pause", "jobs", "queue=mails")
    assert code == 2 and "--yes" in err
    assert len(server.asked) == 1


def test_an_operation_with_refusals_ends_with_1_and_names_them(server: CannedServer, call: Call) -> None:
    failures = [{"id": "j", "reason": "it has ended"}]
    server.says(f"GET /v1/operations/{ID}", view(done=2, failed=1, failures=failures))
    code, out, err = call("operation", ID, "--watch")
    assert code == 1 and "2 of 3 done, 1 refused" in out and "not j: it has ended" in err


def test_an_operation_is_cancelled_by_the_end_of_its_id(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/operations", {"operations": [view()]})
    server.says(f"POST /v1/operations/{ID}:cancel", view(state="CANCELLED", reason="cancelled by ada", done=1))
    code, out, _ = call("operation-cancel", ID[-8:])
    assert code == 0 and "CANCELLED" in out and "1 of 3 done" in out


def test_the_list(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/operations", {"operations": [view(exact=False)]})
    code, out, _ = call("operations", "--state", "done")
    assert code == 0 and "pause jobs" in out and "3 of about 3 done" in out and "queue=mails" in out


def test_a_wrong_filter_and_a_wrong_noun_send_nothing(server: CannedServer, call: Call) -> None:
    assert call("act", "pause", "jobs", "mails")[0] == 2
    assert call("act", "pause", "queues")[0] == 2
    assert server.asked == []
