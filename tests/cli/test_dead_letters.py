"""Dead letters, retries and timelines on the command line: requests and output."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.sdk.wire_samples import MOMENT, problem, run

from .conftest import CannedServer

Call = Callable[..., tuple[int, str, str]]
RUN_ID = run()["run_id"]
NEW_ID = "0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b12"


def letter(**changes: Any) -> dict[str, Any]:
    return {
        "run_id": RUN_ID, "job_id": RUN_ID, "name": "report", "task": "invoice.send", "queue": "default",
        "attempts": 2, "error_message": "TimeoutError: slow\ntraceback", "payload": {"a": 1},
        "scheduled_for": MOMENT, "died_at": MOMENT, "reason": "failed 2 times, no tries left", "replay_of": None,
        "tries": None, **changes,
    }  # fmt: skip


def test_dead_letters_are_listed_by_filter(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/dead-letters", {"dead_letters": [letter()], "next": "c1"})
    code, out, err = call("dead-letters", "--task", "invoice.send", "--error", "slow", "--limit", "5")
    assert code == 0
    assert RUN_ID in out and "invoice.send" in out and "TimeoutError: slow" in out and "traceback" not in out
    assert "--cursor c1" in err
    assert server.asked[0][1] == "task=invoice.send&error=slow&limit=5"
    server.says("GET /v1/dead-letters", {"dead_letters": [], "next": None})
    assert call("dead-letters") == (0, "", "no dead letters\n")


def test_a_dead_letter_is_shown_with_every_error(server: CannedServer, call: Call) -> None:
    tries = [
        {
            "attempt": n, "outcome": outcome, "worker_id": "w", "worker_name": "box-1", "started_at": MOMENT,
            "ended_at": MOMENT, "error": f"error {n}",
        }
        for n, outcome in ((1, "LOST"), (2, "FAILED"))
    ]  # fmt: skip
    server.says(f"GET /v1/dead-letters/{RUN_ID}", letter(tries=tries))
    code, out, _ = call("dead-letter", RUN_ID)
    assert code == 0
    for words in ("no tries left", '{"a":1}', "try 1", "LOST", "on box-1", "error 1", "try 2", "error 2"):
        assert words in out
    code, out, _ = call("dead-letter", RUN_ID, "--json")
    assert json.loads(out)["tries"] == tries


def test_replay_by_id_prints_the_new_ids_and_the_count(server: CannedServer, call: Call) -> None:
    server.says(f"POST /v1/runs/{RUN_ID}:retry", run(run_id=NEW_ID, status="QUEUED"), status=202)
    assert call("replay", RUN_ID) == (0, f"{NEW_ID}\n", "1 replayed\n")
    assert server.asked[-1][2] == {}
    _, out, _ = call("replay", RUN_ID, "--payload", '{"b": 2}', "--json")
    assert json.loads(out) == {"replayed": 1, "run_ids": [NEW_ID], "left": {}, "more": False}
    assert server.asked[-1][2] == {"payload": {"b": 2}}


def test_replay_by_filter_says_what_is_left(server: CannedServer, call: Call) -> None:
    answer = {"replayed": 1, "run_ids": [NEW_ID], "left": {"its job is CANCELLED": 3}, "more": True}
    server.says("POST /v1/dead-letters:replay", answer, status=202)
    code, out, err = call("replay", "--job", "j", "--error", "slow", "--since", "2026-11-01T00:00:00Z")
    assert (code, out) == (0, f"{NEW_ID}\n")
    assert err == "1 replayed; there are more, repeat the command\n3 not replayed: its job is CANCELLED\n"
    assert server.asked[-1][2] == {"job": "j", "error": "slow", "since": "2026-11-01T00:00:00Z"}
    call("replay", "--all")
    assert server.asked[-1][2] == {"all": True}


def test_discard_by_id_and_by_filter(server: CannedServer, call: Call) -> None:
    server.says(f"POST /v1/dead-letters/{RUN_ID}:discard", {"discarded": 1, "more": False})
    assert call("discard", RUN_ID, RUN_ID) == (0, "1 discarded\n", "")  # an id that is given twice counts once
    server.says("POST /v1/dead-letters:discard", {"discarded": 7, "more": False})
    assert call("discard", "--queue", "heavy") == (0, "7 discarded\n", "")
    assert server.asked[-1][2] == {"queue": "heavy"}
    assert json.loads(call("discard", "--all", "--json")[1]) == {"discarded": 7, "more": False}


@pytest.mark.parametrize("verb", ["replay", "discard"])
def test_something_must_say_which_ones_and_only_one_way(server: CannedServer, call: Call, verb: str) -> None:
    code, out, err = call(verb)
    assert (code, out) == (2, "")
    assert "no dead letters are selected" in err and "--all" in err
    code, _, err = call(verb, RUN_ID, "--job", "x")
    assert code == 2 and "give either run ids or filters" in err
    assert server.asked == []


def test_retry_prints_the_new_run_and_tells_a_refusal(server: CannedServer, call: Call) -> None:
    server.says(f"POST /v1/runs/{RUN_ID}:retry", run(run_id=NEW_ID, status="QUEUED"), status=202)
    assert call("retry", RUN_ID) == (0, f"{NEW_ID}\n", "")
    assert json.loads(call("retry", RUN_ID, "--json", "--payload", '{"a": 1}')[1])["run_id"] == NEW_ID
    assert server.asked[-1][2] == {"payload": {"a": 1}}
    refusal = problem(409, "replayed", "it was repeated", hint="repeat that one")
    server.says(f"POST /v1/runs/{RUN_ID}:retry", refusal, status=409)
    code, out, err = call("retry", RUN_ID)
    assert (code, out) == (4, "")
    assert "it was repeated" in err and "repeat that one" in err


def test_timeline_is_a_table_of_what_happened(server: CannedServer, call: Call) -> None:
    entries = [
        {"at": "2026-11-15T09:00:00Z", "state": "FIRED", "node_id": "n1", "reason": "by its schedule"},
        {"at": "2026-11-15T09:00:00.5Z", "state": "RUNNING", "attempt": 1, "worker_id": "w", "worker_name": "box-1"},
        {
            "at": "2026-11-15T09:00:02Z", "state": "FAILED", "attempt": 1, "worker_name": "box-1", "duration": 1.5,
            "reason": "no tries left", "error": "ValueError: no\ntraceback",
        },
    ]  # fmt: skip
    server.says(f"GET /v1/runs/{RUN_ID}/timeline", entries)
    code, out, _ = call("timeline", RUN_ID)
    assert code == 0
    lines = out.splitlines()
    assert len(lines) == 4
    assert "FIRED" in lines[1] and "node n1" in lines[1] and "by its schedule" in lines[1]
    assert "+500ms" in lines[2] and "box-1" in lines[2]
    assert "+2s" in lines[3] and "1.5s" in lines[3] and "no tries left: ValueError: no" in lines[3]
    assert "traceback" not in out
    code, out, _ = call("timeline", RUN_ID, "--json")
    assert [entry["state"] for entry in json.loads(out)] == ["FIRED", "RUNNING", "FAILED"]


def test_a_jobs_id_stands_for_its_latest_run(server: CannedServer, call: Call) -> None:
    latest = run(run_id=RUN_ID, status="FAILED")
    server.says("GET /v1/jobs/report/status", {"job_id": "report", "status": "COMPLETED", "latest_run": latest})
    server.says(f"POST /v1/runs/{RUN_ID}:retry", run(run_id=NEW_ID, status="QUEUED"), status=202)
    assert call("retry", "report")[:2] == (0, f"{NEW_ID}\n")
