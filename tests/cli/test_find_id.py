"""Ids on the command line: whole, or their beginning or end. Nothing happens to an id that is not clear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.sdk.wire_samples import job, problem, run

from .conftest import CannedServer
from .test_dead_letters import letter
from .test_workers import worker

Call = Callable[..., tuple[int, str, str]]
RUN_ID = run()["run_id"]
OTHER = "0197a6c0-5d1e-7c3a-9d50-2f1e6f0a8b11"
PART = "6f0a8b11"


def ids(*matches: tuple[str, str], complete: bool = True, more: bool = False) -> dict[str, Any]:
    found = [{"kind": kind, "id": one, "name": "x.task"} for kind, one in matches]
    return {"ids": found, "complete": complete, "more": more}


def paths(server: CannedServer) -> list[str]:
    return [path for path, _, _ in server.asked]


def test_a_run_by_a_part_of_its_id(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/ids", ids(("run", RUN_ID), ("job", RUN_ID)))
    server.says(f"GET /v1/runs/{RUN_ID}", run())
    server.says(f"GET /v1/runs/{RUN_ID}/why", {"run_id": RUN_ID, "status": "QUEUED", "why": "so"})
    code, out, err = call("run", PART)
    assert (code, err) == (0, "") and RUN_ID in out
    assert call("why", PART)[:2] == (0, "QUEUED: so\n")
    assert server.asked[1] == ("GET /v1/ids", f"part={PART}&kind=run%2Cjob", None)


def test_a_job_by_a_part_of_its_id_stands_for_its_latest_run(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/ids", ids(("job", "daily_report")))
    status = {"job_id": "daily_report", "status": "SCHEDULED", "latest_run": run()}
    server.says("GET /v1/jobs/daily_report/status", status)
    server.says(f"GET /v1/runs/{RUN_ID}/logs", b"printed")
    assert call("logs", "daily")[:2] == (0, "printed")


@pytest.mark.parametrize(
    ("verb", "asked"),
    [
        ("pause", "POST /v1/jobs/{}:pause"),
        ("resume", "POST /v1/jobs/{}:resume"),
        ("cancel", "DELETE /v1/jobs/{}"),
        ("edit --name x", "PATCH /v1/jobs/{}"),
    ],
)
def test_a_job_is_steered_by_a_part_of_its_id(server: CannedServer, call: Call, verb: str, asked: str) -> None:
    server.says("GET /v1/ids", ids(("job", "daily_report")))
    server.says(asked.format("daily_report"), job(job_id="daily_report"))
    server.says(
        "GET /v1/jobs/daily_report/status", {"job_id": "daily_report", "status": "SCHEDULED", "latest_run": None}
    )
    code, out, _ = call(verb.split()[0], "daily_re", *verb.split()[1:])
    assert code == 0 and "daily_report" in out
    assert paths(server)[:3] == [asked.format("daily_re"), "GET /v1/ids", asked.format("daily_report")]


def test_a_run_is_cancelled_by_the_end_of_its_id(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/ids", ids(("run", RUN_ID)))
    server.says(f"POST /v1/runs/{RUN_ID}:cancel", run(status="CANCELLED"), status=202)
    assert call("cancel", PART)[:2] == (0, f"run {RUN_ID} is CANCELLED\n")


def test_an_exact_id_is_never_looked_up(server: CannedServer, call: Call) -> None:
    """A job may have an id that looks like the end of another one."""
    server.says(f"POST /v1/jobs/{PART}:pause", job(job_id=PART, status="PAUSED"))
    server.says(f"DELETE /v1/jobs/{PART}", job(job_id=PART, status="CANCELLED"))
    server.says(f"GET /v1/jobs/{PART}/status", {"job_id": PART, "status": "CANCELLED", "latest_run": None})
    assert call("pause", PART)[0] == call("cancel", PART)[0] == 0
    assert call("retry", PART)[0] == 3  # it has not run yet
    assert "GET /v1/ids" not in paths(server)


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume", "run-now", "retry", "replay", "discard", "logs", "job"])
def test_nothing_happens_to_an_ambiguous_id(server: CannedServer, call: Call, verb: str) -> None:
    server.says("GET /v1/ids", ids(("run", RUN_ID), ("job", OTHER)))
    code, out, err = call(verb, PART)
    assert (code, out) == (4, "")
    assert err == (
        f"error: 2 ids begin or end with '{PART}'\n"
        f"hint: give more characters of one of them: job {OTHER} (x.task), run {RUN_ID} (x.task)\n"
    )
    assert all(path.startswith("GET ") or PART in path for path in paths(server))


def test_dead_letters_are_all_found_before_one_is_touched(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/ids", ids(("dead_letter", RUN_ID)), ids(("dead_letter", RUN_ID), ("dead_letter", OTHER)))
    assert call("discard", "0a8b11", "8b11")[0] == 4
    assert set(paths(server)) == {"GET /v1/ids"}
    server.says("GET /v1/ids", ids(("dead_letter", RUN_ID)))
    server.says(f"POST /v1/dead-letters/{RUN_ID}:discard", {"discarded": 1, "more": False})
    assert call("discard", PART) == (0, "1 discarded\n", "")
    server.says(f"POST /v1/runs/{RUN_ID}:retry", run(run_id=OTHER), status=202)
    assert call("replay", PART)[:2] == (0, f"{OTHER}\n")


@pytest.mark.parametrize("verb", ["replay", "discard"])
def test_nothing_happens_if_one_of_several_ids_is_unknown(server: CannedServer, call: Call, verb: str) -> None:
    server.says("GET /v1/ids", ids(("dead_letter", RUN_ID)))
    for where in ("runs", "dead-letters"):
        server.says(f"GET /v1/{where}/{OTHER}", problem(404, "not_found"), status=404)
    assert call(verb, PART, OTHER)[0] == 3
    assert not [path for path in paths(server) if path.startswith("POST")]


def test_an_id_that_is_given_twice_is_replayed_once(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/ids", ids(("dead_letter", RUN_ID)))
    server.says(f"GET /v1/runs/{RUN_ID}", run())
    server.says(f"POST /v1/runs/{RUN_ID}:retry", run(run_id=OTHER), status=202)
    assert call("replay", PART, RUN_ID, PART)[:2] == (0, f"{OTHER}\n")
    assert paths(server).count(f"POST /v1/runs/{RUN_ID}:retry") == 1


def test_a_filter_takes_a_part_of_a_jobs_id(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/ids", ids(("job", "daily_report")))
    server.says("GET /v1/runs", {"runs": [], "next": None})
    server.says("GET /v1/dead-letters", {"dead_letters": [], "next": None})
    server.says("POST /v1/dead-letters:discard", {"discarded": 7, "more": False})
    call("runs", "--job", "daily_re")
    assert ("GET /v1/runs", "job=daily_report&limit=20", None) in server.asked
    call("discard", "--job", "daily_re")
    assert server.asked[-1][2] == {"job": "daily_report"}


@pytest.mark.parametrize("name", ["nosuch", "abc", RUN_ID])
def test_a_list_of_a_job_that_does_not_exist_says_so(server: CannedServer, call: Call, name: str) -> None:
    server.says("GET /v1/ids", ids())
    server.says("GET /v1/runs", {"runs": [], "next": None})
    server.says("GET /v1/dead-letters", {"dead_letters": [], "next": None})
    server.says(f"GET /v1/jobs/{name}", problem(404, "not_found", f"there is no job {name!r}"), status=404)
    for verb in ("runs", "dead-letters"):
        code, out, err = call(verb, "--job", name)
        assert (code, out, f"there is no job {name!r}" in err) == (3, "", True)
    server.says(f"GET /v1/jobs/{name}", job(job_id=name, next_fire_at=None))
    assert call("runs", "--job", name)[::2] == (0, "no runs\n")


def test_a_filter_takes_a_job_that_only_dead_letters_remember(server: CannedServer, call: Call) -> None:
    """daily_report must not lose its dead letters because the job daily is gone."""
    server.says("GET /v1/ids", ids(("job", "daily_report")))
    server.says("GET /v1/dead-letters", {"dead_letters": [letter(job_id="daily")], "next": None})
    server.says("POST /v1/dead-letters:discard", {"discarded": 1, "more": False})
    call("discard", "--job", "daily")
    assert server.asked[-1][2] == {"job": "daily"}
    assert "GET /v1/ids" not in paths(server)


def test_where_not_everything_was_searched_eight_characters_are_needed(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/ids", ids(("run", RUN_ID), complete=False))
    server.says(f"POST /v1/runs/{RUN_ID}:cancel", run(status="CANCELLED"), status=202)
    code, _, err = call("cancel", "0a8b11")
    assert (code, "at least 8 characters" in err) == (4, True)
    assert call("cancel", PART)[0] == 0
    server.says("GET /v1/ids", ids(complete=False))
    code, _, err = call("cancel", "ffffffff")
    assert (code, "newest 100,000" in err) == (3, True)


def test_fewer_than_four_characters_are_no_part(server: CannedServer, call: Call) -> None:
    assert call("cancel", "b11")[0] == 3
    assert "GET /v1/ids" not in paths(server)


def test_an_older_server_finds_nothing(server: CannedServer, call: Call) -> None:
    server.says("POST /v1/jobs/daily:pause", problem(404, "not_found", "there is no job 'daily'"), status=404)
    code, _, err = call("pause", "daily")
    assert (code, "there is no job 'daily'" in err) == (3, True)


def test_a_missing_attempt_is_no_missing_run(server: CannedServer, call: Call) -> None:
    missing = problem(404, "not_found", "run x has no attempt 7", field="attempt")
    server.says(f"GET /v1/runs/{RUN_ID}", run())
    server.says(f"GET /v1/runs/{RUN_ID}/logs", missing, status=404)
    code, _, err = call("logs", RUN_ID, "--attempt", "7")
    assert (code, "no attempt 7" in err) == (3, True)
    assert "GET /v1/ids" not in paths(server)


def test_a_worker_and_a_token_by_a_part_of_their_ids(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/workers", {"workers": [worker(RUN_ID, "web-1")]})
    server.says("GET /v1/ids", ids(("worker", RUN_ID)))
    server.says(f"POST /v1/workers/{RUN_ID}:drain", worker(RUN_ID, "web-1", "DRAINING"), status=202)
    assert call("drain", PART)[0] == 0
    token = {
        "token_id": RUN_ID, "name": "ci", "role": "admin", "tenants": "own", "created_at": "2030-01-01T00:00:00Z",
        "expires_at": None, "revoked_at": None, "tenant": "default",
    }  # fmt: skip
    server.says("GET /v1/tokens", {"tokens": [token, {**token, "token_id": OTHER}]})
    server.says(f"POST /v1/tokens/{RUN_ID}:revoke", token)
    assert call("token-revoke", PART)[0] == 4
    assert call("token-revoke", "1f6f0a8b11")[:2] == (0, f"token ci ({RUN_ID}) is revoked\n")


@pytest.mark.parametrize("verb", ["run-now", "pause", "logs", "why"])
def test_an_unknown_job_is_answered_with_the_one_that_is_spelt_alike(
    server: CannedServer, call: Call, verb: str
) -> None:
    server.says("GET /v1/jobs", {"jobs": [job(job_id="tick"), job(job_id="other")]})
    server.says("GET /v1/runs", {"runs": [{**run(), "job_id": "nightly"}]})
    for typed, meant in (("tik", "tick"), ("nightli", "nightly")):
        code, _, err = call(verb, typed)
        assert (code, f"hint: did you mean '{meant}'?" in err) == (3, True), err
    code, _, err = call(verb, "quite-another")
    assert (code, "did you mean" in err) == (3, False)
