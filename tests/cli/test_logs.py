"""`mainspring run logs`: by run or by job, raw output, and errors."""

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


def log_range(text: str, start: int, end: int, **fields: object) -> dict[str, object]:
    return {"attempt": 2, "start": start, "end": end, "bytes": 100, "text": text, **fields}


def test_the_last_lines_are_read_in_ranges_from_the_end(server: CannedServer, call: Call) -> None:
    server.says(f"GET /v1/runs/{RUN_ID}", run())
    server.says(f"GET /v1/runs/{RUN_ID}/logs/range", log_range("c\nd\n", 96, 100), log_range("a\nb\n", 92, 96))
    assert call("logs", RUN_ID, "--tail", "4") == (0, "a\nb\nc\nd\n", "")
    assert [query for route, query, *_ in server.asked if route.endswith("range")] == [
        "lines=4",
        "attempt=2&before=96&lines=2",
    ]


def test_a_tail_of_truncated_output_says_so(server: CannedServer, call: Call) -> None:
    server.says(f"GET /v1/runs/{RUN_ID}", run())
    server.says(f"GET /v1/runs/{RUN_ID}/logs/range", log_range("a\n", 98, 100, truncated=True))
    assert call("logs", RUN_ID, "--tail", "1") == (0, "a\n", "the output was truncated here\n")


def test_lines_that_contain_a_text_are_searched_by_the_server_to_the_end(server: CannedServer, call: Call) -> None:
    server.says(f"GET /v1/runs/{RUN_ID}", run())
    first = {"attempt": 2, "matches": [{"start": 0, "at": 1, "text": "a Tear"}], "searched_to": 50, "bytes": 100}
    second = {"attempt": 2, "matches": [{"start": 60, "at": 60, "text": "ear"}], "searched_to": 100, "bytes": 100}
    server.says(f"GET /v1/runs/{RUN_ID}/logs/search", first | {"more": True}, second)
    assert call("logs", RUN_ID, "--grep", "ear") == (0, "a Tear\near\n", "")
    assert [query for route, query, *_ in server.asked if route.endswith("search")] == [
        "text=ear&limit=1000",
        "text=ear&attempt=2&start=50&limit=1000",
    ]
    server.says(f"GET /v1/runs/{RUN_ID}/logs/search", first | {"more": True}, second)
    code, out, _ = call("logs", RUN_ID, "--grep", "ear", "--tail", "1", "--json")
    assert (code, json.loads(out)["matches"]) == (0, second["matches"])


def test_no_match_is_a_failure_and_a_followed_log_is_not_filtered(server: CannedServer, call: Call) -> None:
    server.says(f"GET /v1/runs/{RUN_ID}", run())
    nothing = {"attempt": 2, "matches": [], "searched_to": 100, "bytes": 100}
    server.says(f"GET /v1/runs/{RUN_ID}/logs/search", nothing)
    assert call("logs", RUN_ID, "--grep", "ear") == (1, "", "no line contains 'ear'\n")
    code, out, err = call("logs", RUN_ID, "--grep", "ear", "-f")
    assert (code, out) == (2, "")
    assert "--follow" in err
