"""Output, names and errors that try to control the terminal of whoever looks at them, and the logs of the processes.

Needs: a pseudo-terminal.
"""

from __future__ import annotations

import contextvars
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mainspring.cli.main import main
from mainspring.kernel import logs
from mainspring.kernel.logs import configure_logs, get_logger
from mainspring.kernel.terminal import visible, visible_json, visible_line
from tests.cli.conftest import CannedServer
from tests.cli.conftest import server as server
from tests.cli.test_dead_letters import letter
from tests.cli.test_workers import worker
from tests.processes.cluster import Cluster
from tests.processes.conftest import cluster as cluster
from tests.sdk.wire_samples import job, run

ESCAPES = "\x1b[2J\x1b]0;owned\x07\x9b31m\x1bP\x85\x7f\x08\x00"
HOSTILE = f"be{ESCAPES}fore\rafter\u202egnp.exe\u2066\u200f"
TWO_LINES = f"{HOSTILE}\nstatus  SUCCESS"
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
RUN_ID = run()["run_id"]
EVENTS = [("output", {"attempt": 1, "text": TWO_LINES}), ("end", {"status": "SUCCESS"})]
Terminal = Callable[..., tuple[int, str]]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """Runs a command of the CLI on a real terminal. Returns its exit code and all that the terminal received."""
    monkeypatch.setenv("TERM", "dumb")  # no colours of our own
    monkeypatch.setenv("COLUMNS", "200")

    def show(*arguments: str) -> tuple[int, str]:
        master, slave = os.openpty()
        received: list[bytes] = []
        reader = threading.Thread(target=_read_all, args=(master, received))
        reader.start()
        try:
            with os.fdopen(slave, "w", encoding="utf-8") as screen, monkeypatch.context() as patched:
                patched.setattr(sys, "stdout", screen)
                patched.setattr(sys, "stderr", screen)
                code = main(arguments)
        finally:
            reader.join()
            os.close(master)
        return code, b"".join(received).decode().replace("\r\n", "\n")

    yield show


def _read_all(master: int, received: list[bytes]) -> None:
    while True:
        try:
            received.append(os.read(master, 65536))
        except OSError:  # the other end is closed
            return


def stream() -> bytes:
    return "".join(
        f"id: {number}\nevent: {kind}\ndata: {json.dumps(data)}\n\n" for number, (kind, data) in enumerate(EVENTS)
    ).encode()


@pytest.mark.slow
def test_no_command_lets_a_text_of_others_control_the_terminal(server: CannedServer, terminal: Terminal) -> None:
    hostile = run(
        name=HOSTILE, task=HOSTILE, queue=HOSTILE, reason=HOSTILE, executor_id=HOSTILE, status="FAILED",
        error_message=TWO_LINES, result={"output": TWO_LINES, HOSTILE: HOSTILE}, payload={"a": HOSTILE},
    )  # fmt: skip
    returned = run(task="shell", result={"exit_code": 0, "output": TWO_LINES})
    definition = job(name=HOSTILE, owner=HOSTILE, description=HOSTILE, labels={HOSTILE: HOSTILE}, command=TWO_LINES)
    entry = {
        "at": "2026-11-15T09:00:00Z",
        "state": "FAILED",
        "worker_name": HOSTILE,
        "reason": HOSTILE,
        "error": HOSTILE,
    }
    tries = [{"attempt": 1, "outcome": "FAILED", "worker_name": HOSTILE, "ended_at": entry["at"], "error": TWO_LINES}]
    status = {"job_id": "report", "status": "SCHEDULED", "latest_run": hostile}
    server.says(f"GET /v1/runs/{RUN_ID}", hostile)
    server.says(f"GET /v1/runs/{RUN_ID}/why", {"run_id": RUN_ID, "status": "QUEUED", "why": HOSTILE})
    server.says(f"GET /v1/runs/{RUN_ID}/timeline", [entry])
    server.says(f"GET /v1/runs/{RUN_ID}/logs", TWO_LINES.encode())
    server.says(f"GET /v1/dead-letters/{RUN_ID}", letter(name=HOSTILE, reason=HOSTILE, tries=tries))
    server.says("GET /v1/dead-letters", {"dead_letters": [letter(name=HOSTILE, error_message=TWO_LINES)], "next": None})
    server.says("GET /v1/jobs", {"jobs": [definition], "next": HOSTILE})
    server.says("GET /v1/jobs/report", definition)
    server.says("GET /v1/jobs/report/status", status)
    server.says("GET /v1/jobs/report/upcoming", {"job_id": "report", "fires": []})
    server.says("GET /v1/runs", {"runs": [hostile], "next": None})
    server.says("GET /v1/workers", {"workers": [worker("w", HOSTILE, labels={HOSTILE: HOSTILE}, tasks=[HOSTILE])]})
    server.says("POST /v1/jobs/report:pause", definition | {"job_id": HOSTILE})
    server.says("POST /v1/jobs", {"job_id": "done"}, status=201)
    server.says("GET /v1/jobs/done/status", {"job_id": "done", "status": "COMPLETED", "latest_run": returned})
    for arguments in (
        ("run", RUN_ID), ("run", RUN_ID, "--watch"), ("run", RUN_ID, "--json"), ("why", RUN_ID), ("timeline", RUN_ID),
        ("logs", RUN_ID), ("logs", RUN_ID, "--json"), ("dead-letter", RUN_ID), ("dead-letters",), ("jobs",),
        ("job", "report"), ("job", "report", "--json"), ("runs",), ("workers",), ("pause", "report"),
        ("submit", "--command", "true", "--wait"), ("run", HOSTILE), ("no-such-verb", HOSTILE),
    ):  # fmt: skip
        code, shown = terminal(*arguments)
        assert "error: MainspringError" not in shown and "Traceback" not in shown, shown
        assert not FORBIDDEN.search(shown), f"{arguments}: {shown!r}"
        assert code in (0, 1) or arguments[-1] == HOSTILE, shown
    assert "\\x1b[2J\\x1b]0;owned\\x07\\x9b31m" in terminal("logs", RUN_ID)[1]
    shown = terminal("run", RUN_ID)[1]
    assert len(re.findall("^status", shown, re.MULTILINE)) == 1, "a text cannot look like another field"
    server.says("GET /v1/jobs", {"jobs": [job(name=TWO_LINES)], "next": None})
    assert not re.findall("^status", terminal("jobs")[1], re.MULTILINE), "nor like another row"


def test_a_link_that_signs_in_is_printed_to_a_terminal(server: CannedServer, terminal: Terminal) -> None:
    link = {"code": "c0de", "path": "/ui/#code=c0de", "expires_at": "2030-01-01T00:00:00Z"}
    server.says("POST /v1/session/links", link, status=201)
    code, shown = terminal("open")
    assert code == 0 and f"{server.url}/ui/#code=c0de\n" in shown


@pytest.mark.parametrize("as_json", [False, True])
def test_a_followed_log_neither(server: CannedServer, terminal: Terminal, as_json: bool) -> None:
    server.says(f"GET /v1/runs/{RUN_ID}", run())
    server.says(f"GET /v1/runs/{RUN_ID}/logs", stream())
    code, shown = terminal("logs", RUN_ID, "-f", *(["--json"] if as_json else []))
    assert code == 0 and "status  SUCCESS" in shown
    assert not FORBIDDEN.search(shown), shown


@pytest.mark.slow
def test_the_exact_output_is_there_for_a_pipe_and_for_who_asks_for_it(
    server: CannedServer, terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    server.says(f"GET /v1/runs/{RUN_ID}", run(task="shell", result={"exit_code": 0, "output": TWO_LINES}))
    server.says(f"GET /v1/runs/{RUN_ID}/logs", TWO_LINES.encode())
    assert terminal("logs", RUN_ID, "--raw") == (0, TWO_LINES)
    assert main(["logs", RUN_ID]) == 0
    assert capsys.readouterr().out == TWO_LINES
    assert main(["run", RUN_ID, "--watch"]) == 0
    assert capsys.readouterr().out == f"{TWO_LINES}\n"


def test_what_is_shown_says_what_was_there() -> None:
    assert visible("a\x1b[31m\tb\r\n\rc\x9b\u202e\x00") == "a\\x1b[31m\tb\n\\rc\\x9b\\u202e\\x00"
    assert visible_line("a\n\tb\u2028") == "a\\n\\tb\\u2028"
    assert visible("a\u200bb\u00ad\ufeff\u2060\U000e0041") == "a\\u200bb\\xad\\ufeff\\u2060\\U000e0041"
    assert visible("Grüße, 世界 \u3000 👩\u200d💻") == "Grüße, 世界 \u3000 👩\u200d💻"
    for value in (HOSTILE, "\U000e0041\u200b"):
        text = json.dumps({"a": value}, ensure_ascii=False)
        assert json.loads(visible_json(text)) == {"a": value}
        assert not FORBIDDEN.search(visible_json(text)) and "\U000e0041" not in visible_json(text)


@pytest.mark.slow
def test_the_page_escapes_the_characters_that_the_command_line_escapes() -> None:
    """Line feeds, tabs and the ends of CRLF lines stay in a page, which has no cursor to move."""
    source = (Path(__file__).parents[2] / "dashboard/src/lib/visible/visible.ts").read_text()
    found = re.search(r"UNSEEN =\s+/\[(.*)\]/gu", source)
    assert found is not None
    page = re.compile("[" + re.sub(r"\\u\{(\w+)\}", lambda code: chr(int(code[1], 16)), found[1]) + "]")
    for code in (*range(0xD800), *range(0xE000, 0x110000)):
        escaped = visible_line(chr(code)) != chr(code)
        assert bool(page.match(chr(code))) == (escaped and chr(code) not in "\n\t\r"), hex(code)


def test_a_log_line_on_a_terminal_shows_names_and_errors_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = os.openpty()
    with os.fdopen(slave, "w", encoding="utf-8") as screen:
        monkeypatch.setattr(sys, "stderr", screen)
        monkeypatch.setattr(logs, "_sink", logs._sink)

        def process() -> None:
            configure_logs(role="server", log_format="text")
            get_logger("x").error("failed", name=HOSTILE, names=[HOSTILE], exc_info=ValueError(HOSTILE))

        contextvars.copy_context().run(process)
        shown = os.read(master, 65536).decode().replace("\r\n", "\n")
    os.close(master)
    assert not FORBIDDEN.search(re.sub(r"\x1b\[[0-9;]*m", "", shown)), shown  # without our own colours
    assert "\\x1b[2J" in shown and "31m" in shown


@pytest.mark.slow
@pytest.mark.anyio
async def test_the_output_of_a_failed_command_is_in_no_log_of_a_process(cluster: Cluster) -> None:
    server = await cluster.server()
    worker = await cluster.worker("--log-level", "debug")
    said = "s3cr" + "et"
    job_id = await cluster.submit(command="printf 's3cr' >&2; printf 'et\\033[2J' >&2; exit 3", retries=0)
    ended: dict[str, Any] = await cluster.ended(job_id)
    assert ended["status"] == "FAILED" and said in ended["error_message"], "it is where the run's reader looks"
    assert ended["run_id"] in cluster.said(worker) and "exit_code" in cluster.said(worker)
    for process in (server, worker):
        assert said not in cluster.said(process)
