"""Output to a closed stdout, to a terminal without UTF-8, and to a broken pipe. No traceback is shown."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.sdk.wire_samples import run

from .conftest import CannedServer

RUN_ID = run()["run_id"]


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `command` in a shell where `$MS` is the command line."""
    return subprocess.run(
        ["/bin/sh", "-c", command],
        env={**os.environ, "MS": f"{sys.executable} -m mainspring", **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_closed_stdout_is_nobody_who_reads_and_no_error(server: CannedServer) -> None:
    server.says(f"GET /v1/runs/{RUN_ID}", run())
    server.says(f"GET /v1/runs/{RUN_ID}/logs", "printed")
    done = shell(f"$MS logs {RUN_ID} >&-")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert shell("$MS logs nothing >&- 2>&-").returncode == 3


def test_a_terminal_that_is_not_in_utf8_shows_the_rest(server: CannedServer) -> None:
    server.says(f"GET /v1/runs/{RUN_ID}", run(name="snow \u2603 man"))
    done = shell(f"$MS run {RUN_ID}", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "snow \\u2603 man" in done.stdout and "SUCCESS" in done.stdout
