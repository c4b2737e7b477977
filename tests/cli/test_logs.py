"""`mainspring run logs`: by run or by job, raw output, and errors."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

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


@pytest.mark.parametrize("options", [(), ("--json",), ("--tail", "9"), ("-f",), ("-f", "--json")])
def test_a_log_with_missing_bytes_is_a_failure(server: CannedServer, call: Call, options: tuple[str, ...]) -> None:
    """Who saves the output in a script must not take it for all of it."""
    mark = "\n[mainspring: 48 bytes of output are missing from the log store]\n"
    server.says(f"GET /v1/runs/{RUN_ID}", run())
    server.says(f"GET /v1/runs/{RUN_ID}/logs/range", log_range(f"a{mark}", 0, 100))
    events = (("output", {"attempt": 2, "text": f"a{mark[:30]}"}), ("output", {"attempt": 2, "text": mark[30:]}))
    stream = "".join(f"id: 2:0\nevent: {kind}\ndata: {json.dumps(data)}\n\n" for kind, data in events)
    stream += 'event: end\ndata: {"status": "SUCCESS"}\n\n'
    server.says(f"GET /v1/runs/{RUN_ID}/logs", (stream if "-f" in options else f"a{mark}").encode())
    code, out, err = call("logs", RUN_ID, *options)
    assert code == 1 and "[mainspring: 48 bytes of ou" in out
    assert err.startswith("error: 48 bytes of the output are missing from the log store\nhint: ")


def test_a_log_that_speaks_of_missing_bytes_lacks_none(server: CannedServer, call: Call) -> None:
    server.says(f"GET /v1/runs/{RUN_ID}", run())
    server.says(f"GET /v1/runs/{RUN_ID}/logs", b"x [mainspring: 48 bytes of output are missing from the log store]\n")
    assert call("logs", RUN_ID)[0] == 0


def hits(*texts: str, following: str | None = None, searched_to: str | None = None) -> dict[str, object]:
    found = [
        {
            "run_id": RUN_ID, "job_id": "report", "name": "report", "task": "billing.charge", "queue": "default",
            "status": "FAILED", "attempt": 2, "printed_at": "2026-11-18T09:00:00Z", "more": False,
            "lines": [{"start": 0, "at": 0, "text": text}],
        }
        for text in texts
    ]  # fmt: skip
    return {"hits": found, "next": following, "searched_to": searched_to}


def test_all_runs_are_searched_to_the_end(server: CannedServer, call: Call) -> None:
    empty = hits(following="abc", searched_to="2026-11-18T09:00:00Z")
    server.says("GET /v1/logs", empty, hits("connection refused \x1b[31m"))
    code, out, err = call(
        "logs", "--search", "connection refused", "--task", "billing.charge", "--since", "2d", "--utc"
    )
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"{RUN_ID} billing.charge FAILED, attempt 2, 2026-11-18T09:00:00Z"
    assert out.splitlines()[1] == "    connection refused \\x1b[31m"
    assert "text=connection+refused" in server.asked[-2][1] and "since=20" in server.asked[-2][1]
    assert "cursor=abc" in server.asked[-1][1]


def test_a_search_that_finds_nothing_says_so(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/logs", hits())
    code, out, err = call("logs", "--search", "needle")
    assert (code, out) == (1, "") and "--inside-words" in err
    code, out, err = call("logs", "--regex", "ne+dle", "--json")
    assert code == 1 and json.loads(out) == {"hits": []}


def test_a_search_and_a_run_exclude_each_other(server: CannedServer, call: Call) -> None:
    assert call("logs")[0] == 2
    assert call("logs", RUN_ID, "--search", "needle")[0] == 2
