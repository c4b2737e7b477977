"""The commands that read and change jobs and runs: requests, output and exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.sdk.wire_samples import job, problem, run

from .conftest import CannedServer

Call = Callable[..., tuple[int, str, str]]
RUN_ID = run()["run_id"]


def ago(**span: float) -> str:
    return (datetime.now(UTC) - timedelta(**span)).isoformat()


def test_jobs_shows_a_table_and_passes_its_filters_on(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/jobs", {"jobs": [job(job_id="daily_report", name="Daily report")], "next": "c1"})
    code, out, err = call("jobs", "--status", "paused", "--label", "team=bi", "--search", "rep")
    assert code == 0
    assert "daily_report" in out and "Daily report" in out
    assert "--cursor c1" in err
    assert server.asked[0][1] == "status=paused&label=team%3Abi&q=rep&limit=50"


def test_json_is_the_servers_message_and_nothing_else(server: CannedServer, call: Call) -> None:
    page = {"jobs": [job()], "next": "c1", "searched_to": None}
    server.says("GET /v1/jobs", page)
    code, out, err = call("jobs", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == page


def test_nothing_found_leaves_stdout_empty(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/jobs", {"jobs": [], "next": None})
    code, out, err = call("jobs")
    assert (code, out) == (0, "")
    assert "no jobs" in err


def test_job_shows_definition_fires_and_latest_run(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/jobs/report", job())
    server.says("GET /v1/jobs/report/status", {"job_id": "report", "status": "SCHEDULED", "latest_run": run()})
    server.says("GET /v1/jobs/report/upcoming", {"job_id": "report", "fires": ["2030-01-01T00:00:00Z"]})
    code, out, _ = call("job", "report")
    assert code == 0
    for words in ("0 0 * * * (UTC)", "upcoming", "latest run", RUN_ID, "exponential from 2s to 10m"):
        assert words in out


def test_runs_shows_how_long_ago_and_the_first_line_of_the_error(server: CannedServer, call: Call) -> None:
    failed = run(status="FAILED", error_message="boom\ntraceback", scheduled_for=ago(hours=3, minutes=20, seconds=5))
    server.says("GET /v1/runs", {"runs": [failed], "next": None})
    code, out, _ = call("runs", "--status", "failed", "--error", "boom", "--limit", "5")
    assert code == 0
    assert RUN_ID in out and "3 h ago" in out and "boom" in out and "traceback" not in out
    assert server.asked[0][1] == "status=failed&error=boom&limit=5"


def test_run_shows_the_run(server: CannedServer, call: Call) -> None:
    server.says(f"GET /v1/runs/{RUN_ID}", run(status="FAILED", error_message="exit code 3", result=None))
    code, out, _ = call("run", RUN_ID)
    assert code == 0
    assert "exit code 3" in out and "1 of 4" in out


def test_run_watch_follows_to_the_end(server: CannedServer, call: Call) -> None:
    server.says(f"GET /v1/runs/{RUN_ID}", run(status="RUNNING"), run(status="RUNNING"), run(result=[1, 2]))
    assert call("run", RUN_ID, "--watch")[:2] == (0, "[1,2]\n")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"pause_reason": "no longer declared", "declared_by": "billing"},
         "no longer declared by the code of billing; declare it again, or keep it with: mainspring job resume report"),
        ({}, "the job is paused; go on with: mainspring job resume report"),
    ],
)  # fmt: skip
def test_why_of_a_paused_job_is_why_it_is_paused(
    server: CannedServer, call: Call, fields: dict[str, Any], said: str
) -> None:
    server.says("GET /v1/jobs/report", job(status="PAUSED", **fields))
    server.says("GET /v1/jobs/report/status", {"job_id": "report", "status": "PAUSED", "latest_run": None})
    assert call("why", "report")[:2] == (0, f"PAUSED: {said}\n")
    code, shown, _ = call("job", "report", "--upcoming", "0")
    assert code == 0
    for value in fields.values():
        assert value in shown


def test_why_is_one_sentence(server: CannedServer, call: Call) -> None:
    server.says(f"GET /v1/runs/{RUN_ID}/why", {"run_id": RUN_ID, "status": "QUEUED", "why": "no worker offers task x"})
    assert call("why", RUN_ID)[:2] == (0, "QUEUED: no worker offers task x\n")


@pytest.mark.parametrize(
    ("words", "route", "field", "sample"),
    [
        (("runs", "--task", "rare"), "GET /v1/runs", "runs", run()),
        (("jobs", "--search", "rare"), "GET /v1/jobs", "jobs", job()),
        (("missed", "--reason", "rare"), "GET /v1/missed-fires", "missed", None),
    ],
)
def test_a_list_goes_on_where_the_search_ended_and_says_how_far_it_has_looked(
    server: CannedServer, call: Call, words: tuple[str, ...], route: str, field: str, sample: Any
) -> None:
    rows = [] if sample is None else [sample]
    server.says(
        route,
        {field: [], "next": "a", "searched_to": "2026-11-17T01:02:03Z"},
        {field: rows, "next": "b", "searched_to": "2026-11-16T00:00:00Z"},
        {field: [], "next": None, "searched_to": None},
    )
    code, out, err = call(*words)
    assert code == 0 and "looked back to 2026-11-17 01:02:03 UTC, 0 found" in err
    assert "so far" not in out + err and "--cursor" not in err
    assert len(server.asked) == 3
    if sample is None:
        assert "no missed fires" in out + err
    else:
        assert sample["job_id"][-4:] in out


JOB_WHY = {
    "job_id": "report", "status": "SCHEDULED", "reason": "calendar", "why": "The calendar de excludes it.",
    "at": "2026-11-17T03:00:00Z", "fire": None, "run_id": None, "run_status": None, "missed": None,
    "fire_before": None, "fire_after": None,
}  # fmt: skip


def test_why_of_a_job_at_a_time(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/jobs/report/why", JOB_WHY)
    assert call("why", "report", "--at", "2026-11-17T03:00")[:2] == (0, "CALENDAR: The calendar de excludes it.\n")
    assert server.asked[0][1] == "at=2026-11-17T03%3A00"
    code, out, _ = call("run", "why", "report", "--at", "2026-11-17T03:00", "--json")
    assert code == 0 and json.loads(out)["reason"] == "calendar"


def test_why_of_a_recurring_job_is_about_its_last_fire_unless_a_run_is_alive(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/jobs/report", job(schedule_type="CRON"))
    server.says("GET /v1/jobs/report/status", {"job_id": "report", "status": "SCHEDULED", "latest_run": run()})
    server.says("GET /v1/jobs/report/why", {**JOB_WHY, "reason": "ran", "run_id": RUN_ID, "run_status": "SUCCESS"})
    assert call("why", "report")[:2] == (0, "SUCCESS: The calendar de excludes it.\n")


def test_missed_lists_the_fires_that_did_not_run(server: CannedServer, call: Call) -> None:
    one = {
        "job_id": "report", "name": "report", "first": "2026-11-17T03:00:00Z", "last": "2026-11-17T04:00:00Z",
        "count": 2, "reason": "paused", "recorded_at": "2026-11-17T08:00:00Z",
    }  # fmt: skip
    server.says("GET /v1/missed-fires", {"missed": [one]})
    code, out, _ = call("missed", "--reason", "paused", "--utc")
    assert code == 0 and "report" in out and "paused" in out and "2026-11-17T03:00:00Z" in out
    assert server.asked[0][1] == "reason=paused&limit=20"
    server.says("GET /v1/jobs/report", job())
    server.says("GET /v1/missed-fires", {"missed": []})
    code, out, err = call("missed", "report")
    assert code == 0 and "no missed fires" in out + err


def test_cancel_tries_the_run_first(server: CannedServer, call: Call) -> None:
    server.says(f"POST /v1/runs/{RUN_ID}:cancel", run(status="RUNNING"), status=202)
    code, out, _ = call("cancel", RUN_ID)
    assert code == 0
    assert out.startswith(f"run {RUN_ID} was asked to stop")
    assert server.asked == [(f"POST /v1/runs/{RUN_ID}:cancel", "", {})]


def test_cancel_turns_to_the_job_when_there_is_no_such_run(server: CannedServer, call: Call) -> None:
    server.says(f"DELETE /v1/jobs/{RUN_ID}", job(job_id=RUN_ID, status="CANCELLED"))
    server.says(f"GET /v1/jobs/{RUN_ID}/status", {"job_id": RUN_ID, "status": "CANCELLED", "latest_run": None})
    assert call("cancel", RUN_ID)[:2] == (0, f"job {RUN_ID} is CANCELLED\n")


def test_cancel_of_a_chosen_id_goes_to_the_job_at_once(server: CannedServer, call: Call) -> None:
    server.says("DELETE /v1/jobs/report", job(status="CANCELLED"))
    server.says(
        "GET /v1/jobs/report/status",
        {"job_id": "report", "status": "CANCELLED", "latest_run": run(status="RUNNING", end_time=None)},
    )
    code, out, err = call("cancel", "report")
    assert (code, out) == (0, "job report is CANCELLED\n")
    assert server.asked[0][0] == "DELETE /v1/jobs/report"
    assert f"run {RUN_ID} was asked to stop (RUNNING); it becomes CANCELLED when its processes have ended" in err


def test_a_long_error_is_shown_by_its_beginning_and_its_end(server: CannedServer, call: Call) -> None:
    error = "\n".join(["exit code 3: begin", *(f"line {n}" for n in range(200)), "the cause"])
    server.says(f"GET /v1/runs/{RUN_ID}", run(status="FAILED", error_message=error, result=None))
    _, out, _ = call("run", RUN_ID)
    assert "exit code 3: begin" in out and "the cause" in out and "... 182 more lines ..." in out
    assert out.count("\n") < 40


def test_watching_tells_a_reason_that_the_error_does_not(server: CannedServer, call: Call) -> None:
    ended = {"status": "FAILED", "error_message": "exit code 3", "result": None}
    server.says(f"GET /v1/runs/{RUN_ID}", run(**ended, reason="timed out after 4s in all (run_timeout)"))
    assert "error: exit code 3\ntimed out after 4s in all (run_timeout)\n" in call("run", RUN_ID, "--watch")[2]
    server.says(f"GET /v1/runs/{RUN_ID}", run(**ended, reason="failed with exit code 3: rule retry.rules[0] gives up"))
    assert call("run", RUN_ID, "--watch")[2].endswith("rule retry.rules[0] gives up\n")
    server.says(f"GET /v1/runs/{RUN_ID}", run(**ended, reason="failed 1 time, no tries left"))
    assert call("run", RUN_ID, "--watch")[2].endswith("error: exit code 3\n")


def test_pause_and_resume(server: CannedServer, call: Call) -> None:
    server.says("POST /v1/jobs/report:pause", job(status="PAUSED", next_fire_at=None))
    server.says("POST /v1/jobs/report:resume", job(next_fire_at="2030-01-01T00:00:00Z"))
    assert call("pause", "report")[:2] == (0, "job report is PAUSED\n")
    code, out, _ = call("resume", "report")
    assert code == 0
    assert out.startswith("job report is SCHEDULED, next fire ")


def test_run_now_gives_the_runs_id_or_waits_for_that_run(server: CannedServer, call: Call) -> None:
    server.says("POST /v1/jobs/report:runNow", {"run_id": RUN_ID, "job_id": "report"}, status=202)
    server.says(f"GET /v1/runs/{RUN_ID}", run(status="QUEUED"), run(result=7))
    assert call("run-now", "report")[:2] == (0, f"{RUN_ID}\n")
    assert call("run-now", "report", "--payload", '{"a": 1}', "--idempotency-key", "k")[0] == 0
    assert [asked[2] for asked in server.asked] == [{}, {"idempotency_key": "k", "payload": {"a": 1}}]
    assert call("run-now", "report", "--wait")[:2] == (0, "7\n")
    server.says("POST /v1/jobs/report:runNow", {"run_id": RUN_ID, "job_id": "report", "does_not_wait_for": ["ingest"]})
    assert "does not wait for ingest" in call("run-now", "report")[2]


def test_workers_and_queues_are_tables(server: CannedServer, call: Call) -> None:
    worker = {
        "worker_id": RUN_ID, "name": "w1", "state": "LIVE", "queues": ["default"], "tasks": ["hello", "shell"],
        "slots": 16, "running": 2, "labels": {}, "version": "1", "registered_at": ago(hours=1), "last_beat_at": ago(),
    }  # fmt: skip
    queue = {
        "name": "default", "depth": 3, "scheduled": 1, "running": 2, "oldest_seconds": 75.0, "rate": 1.5, "workers": 1,
    }  # fmt: skip
    server.says("GET /v1/workers", {"workers": [worker]})
    server.says("GET /v1/queues", {"queues": [queue]})
    assert "2/16" in call("workers")[1]
    assert "1m15s" in call("queues")[1]


@pytest.mark.parametrize(
    ("status", "code", "ending"),
    [
        (422, "invalid_input", 2),
        (404, "not_found", 3),
        (409, "conflict", 4),
        (401, "unauthorized", 5),
        (403, "forbidden", 5),
        (500, "internal", 1),
    ],
)
def test_each_class_of_error_has_its_exit_code(
    server: CannedServer, call: Call, status: int, code: str, ending: int
) -> None:
    server.says("GET /v1/jobs/x", problem(status, code, "this went wrong"), status=status)
    ended, out, err = call("job", "x")
    assert (ended, out) == (ending, "")
    assert err.startswith("error: this went wrong\n")
    assert len(err.splitlines()) <= 2


def test_with_json_the_problem_is_json_on_stderr(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/jobs/x", problem(404, "not_found", "there is no job x", hint="look elsewhere"), status=404)
    ended, out, err = call("job", "x", "--json")
    assert (ended, out) == (3, "")
    assert json.loads(err) == {"code": "not_found", "detail": "there is no job x", "hint": "look elsewhere"}


def test_a_server_that_is_not_there(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.cli.connect._PATIENCE", 0.0)
    monkeypatch.setenv("MAINSPRING_URL", "http://127.0.0.1:1")
    code, out, err = call("jobs")
    assert (code, out) == (6, "")
    assert "is it running? start it with: mainspring up" in err


@pytest.mark.parametrize("args", [("jobs", "--nope"), ("nope",), ("job",), ("jobs", "--limit", "many")])
def test_misuse_is_two_lines_and_exit_code_2(call: Call, args: tuple[str, ...]) -> None:
    code, out, err = call(*args)
    assert (code, out) == (2, "")
    first, second = err.splitlines()
    assert first.startswith("error: ") and "--help" in second


@pytest.mark.parametrize(
    ("typed", "said", "hint"),
    [
        ("queue set q --concurency 3", "there is no option --concurency",
         "did you mean --concurrency? see mainspring queue set"),
        ("submit --task hello", "there is no option --task",
         "TASK stands without --task, as a word of its own; see mainspring submit"),
        ("job edit j --corn x", "there is no option --corn", "did you mean --cron? see mainspring job edit"),
        ("secret set x --value abc", "there is no option --value", "did you mean --file? see mainspring secret set"),
        ("jobs list", "too many words: list",
         "did you mean `mainspring job list`? see mainspring jobs"),
        ("rule set r --channel x", "there is no option --channel", "see mainspring rule set"),
        ("status --job x", "there is no option --job", "its options are --json; see mainspring status"),
        ("source show x", "mainspring source has no command 'show'",
         "it has list, dead, delete; see mainspring source"),
        ("breaker list x", "too many words: x", "such as `mainspring breaker list`; see mainspring breaker list"),
        ("secret set", "Missing argument 'NAME'.",
         "such as `mainspring secret set db-password`; see mainspring secret set"),
        ("worker --slots 0", "--slots: 0 is out of range", "expected 1 to 100000; see mainspring worker start"),
        ("worker --slots many", "--slots: 'many' is not a whole number", "see mainspring worker start"),
        ("submit x --retries many", "--retries: 'many' is not a whole number", "see mainspring submit"),
        ("--server http://x job list", "there is no option --server",
         "options stand after the command; see mainspring"),
        ("submit hello --queue", "Option '--queue' requires an argument.", "see mainspring submit"),
        ("token add web --queue", "Option '--queue' requires an argument.", "see mainspring token add"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_named_with_the_one_that_was_meant(call: Call, typed: str, said: str, hint: str) -> None:
    assert call(*typed.split()) == (2, "", f"error: {said}\nhint: {hint} --help\n")


def test_a_filter_that_nothing_matches_is_said(server: CannedServer, call: Call) -> None:
    said = "no dead letter matches; see `mainspring dead-letter list`"
    server.says("POST /v1/dead-letters:replay", {"run_ids": [], "replayed": 0, "more": False, "left": {}}, status=202)
    assert said in call("dead-letter", "replay", "--queue", "nope")[2]
    server.says("POST /v1/dead-letters:discard", {"discarded": 0, "more": False})
    assert said in call("dead-letter", "discard", "--queue", "nope")[2]
    server.says("GET /v1/runs", {"runs": [], "next": None})
    assert "only values that the job or its task names in `search`" in call("run", "list", "--payload", "account=4")[2]


def test_a_role_without_a_database_says_what_to_give(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAINSPRING_DATABASE_URL", raising=False)
    code, _, err = call("migrate")
    assert code == 2
    assert "--database-url" in err


def test_what_a_job_wrote_cannot_steer_the_terminal(server: CannedServer, call: Call) -> None:
    server.says(f"GET /v1/runs/{RUN_ID}", run(status="FAILED", error_message="\x1b[2Jgone [red]not markup[/red]"))
    _, out, _ = call("run", RUN_ID)
    assert "\x1b" not in out and "[red]not markup[/red]" in out


def test_a_run_shows_what_its_processes_use(server: CannedServer, call: Call) -> None:
    server.says(f"GET /v1/runs/{RUN_ID}", run(usage={"cpu_s": 61.5, "rss_peak": 88_690_688, "rss": 1024}))
    assert "1m2s of CPU time, at most 84.6MiB of memory (1KiB now)" in call("run", RUN_ID)[1]
    server.says(f"GET /v1/runs/{RUN_ID}", run(usage={"cpu_s": 0.02, "rss_peak": 900}))
    assert "20ms of CPU time, at most 900B of memory\n" in call("run", RUN_ID)[1]
    server.says(f"GET /v1/runs/{RUN_ID}", run())
    assert "CPU" not in call("run", RUN_ID)[1]
