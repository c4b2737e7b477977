"""`mainspring submit` and `--wait`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.sdk.wire_samples import problem, run

from .conftest import CannedServer

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def accepting(server: CannedServer) -> CannedServer:
    server.says("POST /v1/jobs", {"job_id": "j1"}, status=201)
    return server


def sent(server: CannedServer) -> dict[str, Any]:
    body = dict(server.asked[0][2])
    del body["idempotency_key"]
    return body


def stream(*events: tuple[str, dict[str, Any]]) -> bytes:
    """A followed log as the server sends it."""
    return b"".join(f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode() for kind, data in events)


def status(run_status: str, **changes: Any) -> dict[str, Any]:
    return {"job_id": "j1", "status": "SCHEDULED", "latest_run": run(status=run_status, **changes)}


def test_a_task_with_parameters(accepting: CannedServer, call: Call) -> None:
    assert call("submit", "hello", "name=you", "times=3", "loud=true", "note=a=b") == (0, "j1\n", "")
    assert sent(accepting) == {
        "task": "hello",
        "payload": {"name": "you", "times": 3, "loud": True, "note": "a=b"},
    }


def test_a_shell_cron(accepting: CannedServer, call: Call) -> None:
    code, out, _ = call("submit", "--command", "date", "--cron", "* * * * *", "--timezone", "Europe/Berlin", "--json")
    assert (code, json.loads(out)) == (0, {"job_id": "j1"})
    assert sent(accepting) == {
        "command": "date",
        "schedule": {"cron": "* * * * *", "timezone": "Europe/Berlin"},
    }


def test_every_option_reaches_the_server(accepting: CannedServer, call: Call) -> None:
    call(
        *("submit", "t", "--payload", '{"a": 1}', "--manual", "--name", "N", "--queue", "q", "--priority", "high"),
        *("--timeout", "15m", "--retries", "2", "--job-id", "chosen", "--label", "team=bi", "--label", "x=y=z"),
    )
    assert sent(accepting) == {
        "task": "t",
        "payload": {"a": 1},
        "schedule": "manual",
        "name": "N",
        "queue": "q",
        "priority": "high",
        "timeout": "15m",
        "retries": 2,
        "job_id": "chosen",
        "labels": {"team": "bi", "x": "y=z"},
    }


def test_an_http_call(accepting: CannedServer, call: Call) -> None:
    call(
        *("submit", "--http", "https://example.com/hook", "--method", "PUT", "--body", '{"id": 7}'),
        *("--header", "Authorization: Bearer a:b=c", "--header", "X-A:1", "--limit", "output=1MB"),
    )
    assert sent(accepting) == {
        "http": {
            "url": "https://example.com/hook",
            "method": "PUT",
            "headers": {"Authorization": "Bearer a:b=c", "X-A": "1"},
            "body": {"id": 7},
        },
        "limits": {"output": "1MB"},
    }


def test_a_body_that_is_no_json_is_sent_as_text(accepting: CannedServer, call: Call) -> None:
    call("submit", "--http", "https://example.com/hook", "--body", "hello there")
    assert sent(accepting) == {"http": {"url": "https://example.com/hook", "body": "hello there"}}


def test_where_and_with_what(accepting: CannedServer, call: Call) -> None:
    call(
        *("submit", "--command", "make", "--env", "A=1", "--env", "B=x=y", "--sandbox", "bubblewrap"),
        *("--limit", "memory=512MB", "--limit", "processes=8", "--limit", "cpu=1.5", "--kill-grace", "10s"),
        *("--require", "gpu=yes", "--require", "zone=b", "--run-timeout", "2h"),
    )
    assert sent(accepting) == {
        "command": "make",
        "env": {"A": "1", "B": "x=y"},
        "sandbox": "bubblewrap",
        "limits": {"memory": "512MB", "processes": 8, "cpu": 1.5},
        "kill_grace": "10s",
        "required_labels": {"gpu": "yes", "zone": "b"},
        "run_timeout": "2h",
    }


def test_a_chosen_key_is_kept(accepting: CannedServer, call: Call) -> None:
    call("submit", "t", "--idempotency-key", "k1")
    assert accepting.asked[0][2]["idempotency_key"] == "k1"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("t", "--payload", "[1]"), "--payload is a list, not a JSON object"),
        (("t", "--payload", "{}", "a=1"), "--payload and key=value cannot be combined"),
        (("t", "lonely"), "'lonely' is not key=value"),
        (("echo", "hello"), "a shell command is given with --command"),
        (("t", "--tz", "Europe/Berlin"), "did you mean --timezone?"),
        (("t", "--delay", "5m"), "did you mean --in?"),
        (("--command", "x", "--env", "A=@secret"), "--env: '@secret' is not the name of a secret"),
        (("--command", "x", "--env", "A=@secrets:db"), "expected @secret:NAME"),
        (("--command", "x", "--env", 'A={"$secret": "db"}'), "expected @secret:NAME"),
        (("--http", "https://x", "--header", "X-Key: @secret"), "expected @secret:NAME"),
        (("t", "--env", "A"), "'A' is not key=value"),
        (("t", "--limit", "memory"), "'memory' is not key=value"),
        (("t", "--require", "=x"), "'=x' is not key=value"),
        (("--http", "http://x", "--header", "Bearer x"), "'Bearer x' is not key:value"),
        (("t", "--body", "{}"), "give --http URL"),
        (("t", "--method", "GET"), "give --http URL"),
        (("t", "--at", "2026-01-01T00:00:00Z", "--cron", "@daily"), "both say when"),
    ],
)
def test_what_is_wrong_here_is_said_here(
    accepting: CannedServer, call: Call, args: tuple[str, ...], words: str
) -> None:
    code, out, err = call("submit", *args)
    assert (code, out) == (2, "")
    assert words in err
    assert accepting.asked == []


def test_waiting_prints_the_result_and_ends_well(accepting: CannedServer, call: Call) -> None:
    accepting.says("GET /v1/jobs/j1/status", status("QUEUED"), status("SUCCESS", result="Hello, you!"))
    code, out, err = call("submit", "hello", "--wait")
    assert (code, out) == (0, "Hello, you!\n")
    assert "SUCCESS after 250ms" in err


def test_waiting_for_a_shell_command_prints_what_it_printed(accepting: CannedServer, call: Call) -> None:
    result = {"exit_code": 0, "output": "hello\n"}
    accepting.says("GET /v1/jobs/j1/status", status("SUCCESS", task="shell", result=result))
    assert call("submit", "--command", "echo hello", "--wait")[:2] == (0, "hello\n")


@pytest.mark.parametrize("ending", ["FAILED", "CANCELLED", "SKIPPED"])
def test_waiting_for_any_other_end_fails_with_its_words(accepting: CannedServer, call: Call, ending: str) -> None:
    accepting.says("GET /v1/jobs/j1/status", status(ending, error_message="exit code 3"))
    code, out, err = call("submit", "hello", "--wait")
    assert (code, out) == (1, "")
    assert ending in err and "exit code 3" in err


def test_waiting_with_json_prints_the_run_alone(accepting: CannedServer, call: Call) -> None:
    accepting.says("GET /v1/jobs/j1/status", status("FAILED", error_message="no"))
    code, out, err = call("submit", "hello", "--wait", "--json")
    assert (code, err) == (1, "")
    assert json.loads(out)["status"] == "FAILED"


def test_waiting_no_longer_than_asked(accepting: CannedServer, call: Call) -> None:
    accepting.says("GET /v1/jobs/j1/status", status("QUEUED", reason="no worker offers task hello"))
    code, out, err = call("submit", "hello", "--wait", "--timeout-wait", "0s")
    assert (code, out) == (1, "")
    assert "still QUEUED (no worker offers task hello)" in err


def test_a_refusal_of_the_server_is_two_lines(server: CannedServer, call: Call) -> None:
    refusal = problem(
        422, "invalid_cron", "'61 * * * *' is not a cron expression", field="schedule.cron", hint="@daily"
    )
    server.says("POST /v1/jobs", refusal, status=422)
    code, out, err = call("submit", "t", "--cron", "61 * * * *")
    assert (code, out) == (2, "")
    assert err == "error: --cron: '61 * * * *' is not a cron expression\nhint: @daily\n"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--at", "2099-01-01T00:00:00Z", "--in", "5m"], "--at and --in both say when"),
        (["--in", "5m", "--cron", "@daily"], "--cron and --in both say when"),
    ],
)
def test_two_options_that_say_when_are_named_as_they_were_typed(
    server: CannedServer, call: Call, options: list[str], error: str
) -> None:
    code, _, err = call("submit", "t", *options)
    assert (code, err, server.asked) == (2, f"error: {error}\nhint: give one of them\n", [])


@pytest.mark.parametrize(
    ("options", "field", "detail", "error"),
    [
        (["--in", "5x"], "delay", "'5x' is not a duration", "--in: '5x' is not a duration"),
        (["--in=5x"], "delay", "'5x' is not a duration", "--in: '5x' is not a duration"),
        (["--every", "5x"], "schedule.every", "'5x' is not a duration", "--every: '5x' is not a duration"),
        (["--limit", "memory=5x"], "limits.memory", "'5x' is not a size", "--limit memory: '5x' is not a size"),
        (["--http", "ftp://x"], "http.url", "'ftp://x' is not an address", "--http: 'ftp://x' is not an address"),
        (["--http", "x", "--header", "Host: x"], "http.headers.Host", "no", "--header Host: no"),
        (["--rate", "9/x"], "rate_limit", "'9/x' is not a rate", "--rate: '9/x' is not a rate"),
        (["--timezone", "UTC"], "timezone", "timezone has no effect on a delay", "--timezone has no effect on a delay"),
        (["--command", "x", "--http", "x"], "http", "command and http cannot be combined",
         "--command and --http cannot be combined"),
        (["--name", "x"], "name", "a name has no tab", "--name: a name has no tab"),
        (["x=1"], "payload.x", "x is not a text", "payload.x: x is not a text"),
        ([], "timeout", "the default is too long", "timeout: the default is too long"),
        (["--at", "x"], "task", "at most one", "task: at most one"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_option_that_was_typed(
    server: CannedServer, call: Call, options: list[str], field: str, detail: str, error: str
) -> None:
    server.says("POST /v1/jobs", problem(422, "invalid_input", detail, field=field), status=422)
    task = [] if "--command" in options or "--http" in options else ["t"]
    assert call("submit", *task, *options)[2] == f"error: {error}\n"
    assert json.loads(call("submit", *task, *options, "--json")[2])["field"] == field


def test_what_the_server_warns_of_is_printed_and_the_job_is_submitted(accepting: CannedServer, call: Call) -> None:
    warning = "no worker offers task frist; did you mean 'first'?"
    accepting.says("POST /v1/jobs", {"job_id": "j1", "warnings": [warning]}, status=201)
    assert call("submit", "frist") == (0, "j1\n", f"warning: {warning}\n")
    assert call("submit", "frist")[2] == ""  # the client says the same only once a minute


def test_retry_rules_and_delivery(accepting: CannedServer, call: Call) -> None:
    rules = '{"base": "5s", "rules": [{"exit_code": 2, "then": "give_up"}]}'
    assert call("submit", "--command", "x", "--retry", rules, "--delivery", "at_most_once")[0] == 0
    assert sent(accepting) == {
        "command": "x",
        "delivery": "at_most_once",
        "retry": {"base": "5s", "rules": [{"exit_code": 2, "then": "give_up"}]},
    }
    code, _, err = call("submit", "--command", "x", "--retry", "5")
    assert code == 2
    assert err.startswith("error: --retry is a number, not a JSON object") and "max_attempts" in err


@pytest.mark.parametrize(
    ("option", "example"), [("--require", "gpu=a100"), ("--env", "REGION=eu"), ("--limit", "memory=")]
)
def test_a_pair_without_its_mark_gets_an_example_of_its_kind(call: Call, option: str, example: str) -> None:
    code, _, err = call("submit", "--command", "x", option, "oops")
    assert code == 2
    assert f"hint: such as {example}" in err


@pytest.mark.parametrize(
    ("arguments", "words"), [(("--timeout-wait", "5s"), "--wait"), (("--wait", "--timeout-wait", "x"), "'x'")]
)
@pytest.mark.parametrize("verb", [("submit", "hello"), ("run-now", "hello")])
def test_a_bad_wait_is_refused_before_anything_is_submitted(
    verb: tuple[str, ...], arguments: tuple[str, ...], words: str, server: CannedServer, call: Callable[..., Any]
) -> None:
    code, out, err = call(*verb, *arguments)
    assert (code, out, server.asked) == (2, "", [])
    assert words in err


def test_waiting_shows_the_output_of_all_attempts_and_ends_with_the_verdict_over_them(
    accepting: CannedServer, call: Call
) -> None:
    run_id = run()["run_id"]
    result = {"exit_code": 0, "output": "second\n"}
    ended = status("SUCCESS", task="shell", result=result, attempt_number=2, end_time="2026-11-15T09:00:08Z")
    accepting.says("GET /v1/jobs/j1/status", status("QUEUED"), ended)
    accepting.says(
        f"GET /v1/runs/{run_id}/logs",
        stream(
            ("output", {"attempt": 1, "text": "first\n"}),
            ("attempt", {"attempt": 2}),
            ("output", {"attempt": 2, "text": "second\n"}),
            ("end", {"status": "SUCCESS"}),
        ),
    )
    steps = [
        {"at": "2026-11-15T09:00:00Z", "state": "RUNNING", "attempt": 1},
        {"at": "2026-11-15T09:00:01Z", "state": "FAILED", "attempt": 1, "error": "exit code 3: first\nno region"},
        {"at": "2026-11-15T09:00:07Z", "state": "RUNNING", "attempt": 2},
    ]
    accepting.says(f"GET /v1/runs/{run_id}/timeline", steps)
    code, out, err = call("submit", "--command", "x", "--wait")
    assert (code, out) == (0, "first\nsecond\n"), "the output is not repeated at the end"
    assert "--- attempt 2 ---" in err
    assert "SUCCESS on attempt 2 of 4 after 8s; before that FAILED: exit code 3: no region (run" in err


@pytest.mark.parametrize("together", [True, False])
def test_the_verdict_begins_a_line_where_it_follows_the_output(
    accepting: CannedServer, call: Call, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    monkeypatch.setattr("mainspring.cli.wait_output.shares_a_screen", lambda: together)
    ended = status("SUCCESS", task="shell", result={"exit_code": 0, "output": "no newline"})
    accepting.says("GET /v1/jobs/j1/status", status("QUEUED"), ended)
    log = stream(("output", {"attempt": 1, "text": "no newline"}), ("end", {"status": "SUCCESS"}))
    accepting.says(f"GET /v1/runs/{run()['run_id']}/logs", log)
    _, out, err = call("submit", "--command", "x", "--wait")
    assert out == "no newline"
    assert ("\n\nSUCCESS" in f"\n{err}") == together


def test_overlap_and_misfire(accepting: CannedServer, call: Call) -> None:
    call("submit", "t", "--cron", "@daily", "--overlap", "allow", "--misfire", "all,grace=1h,cap=5", "--owner", "bi")
    body = sent(accepting)
    assert (body["overlap"], body["owner"]) == ("allow", "bi")
    assert body["misfire"] == {"policy": "all", "grace": "1h", "cap": 5}
    code, _, err = call("submit", "t", "--misfire", "once,grace")
    assert code == 2 and "'grace' is not key=value" in err


def test_a_unique_job(accepting: CannedServer, call: Call) -> None:
    call("submit", "t", "a=1", "--unique", "task, payload.a,for=10m,while=queued+running,else=keep")
    assert sent(accepting)["unique"] == {
        "by": ["task", "payload.a"], "for": "10m", "while": ["queued", "running"], "else": "keep",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("kept", "it stays as it is"),
        ("replaced", "it has the new payload"),
        ("later", "it waits until the new time"),
        ("sent", "sent"),  # by a newer server
    ],
)
def test_a_submission_that_was_merged_is_told_in_words(
    server: CannedServer, call: Call, answer: str, words: str
) -> None:
    server.says("POST /v1/jobs", {"job_id": "j1", "unique": answer})
    code, out, told = call("submit", "t", "--unique", "task")
    assert (code, out) == (0, "j1\n")
    assert told == f"no new job: j1 has the unique key ({words})\n"
    code, out, told = call("submit", "t", "--unique", "task", "--json")
    assert (json.loads(out), told) == ({"job_id": "j1", "unique": answer}, "")
