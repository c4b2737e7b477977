"""`mainspring logs`: by run or by job, raw output, and errors."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.sdk.wire_samples import run

from .conftest import CannedServer

Call = Callable[..., tuple[int, str, str]]
RUN_ID = run()["run_id"]


def test_a_run_is_shown_as_it_printed(server: CannedServer, call: Call) -> None:
    server.says(f"GET /v1/runs/{RUN_ID}", run())
    server.says(f"GET /v1/runs/{RUN_ID}/logs", "printed")
    assert call("logs", RUN_ID, "--attempt", "2") == (0, '"printed"', "")
    assert server.asked[-1][:2] == (f"GET /v1/runs/{RUN_ID}/logs", "attempt=2")


def test_as_json_it_is_one_object(server: CannedServer, call: Call) -> None:
    server.says(f"GET /v1/runs/{RUN_ID}", run())
    server.says(f"GET /v1/runs/{RUN_ID}/logs", "printed")
    code, out, err = call("logs", RUN_ID, "--json")
    assert (code, json.loads(out), err) == (0, {"run_id": RUN_ID, "attempt": None, "text": '"printed"'}, "")


def test_a_job_stands_for_its_latest_run(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/jobs/report/status", {"job_id": "report", "status": "SCHEDULED", "latest_run": run()})
    server.says(f"GET /v1/runs/{RUN_ID}/logs", "printed")
    assert call("logs", "report")[:2] == (0, '"printed"')


def test_a_job_that_has_not_run_and_one_that_is_not_there_are_told_apart(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/jobs/report/status", {"job_id": "report", "status": "SCHEDULED", "latest_run": None})
    code, out, err = call("logs", "report")
    assert (code != 0, out) == (True, "")
    assert "job report has not run yet" in err
    code, out, err = call("logs", "nothing", "-f")
    assert (code != 0, out) == (True, "")
    assert "there is no run and no job 'nothing'" in err
