"""Completion in the shell: what is offered, quickly, safely, and silently if there is no server."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mainspring.cli import completing
from tests.sdk.wire_samples import job, run

from .conftest import CannedServer
from .test_dead_letters import letter
from .test_workers import worker

Call = Callable[..., tuple[int, str, str]]
RUN_ID = run()["run_id"]
OTHER = "0197a6c0-5d1e-7c3a-9d50-2f1e6f0a8b12"


def offered(complete: Callable[..., Any], incomplete: str = "", **params: Any) -> list[str]:
    return [value for value, _ in complete(SimpleNamespace(params=params), incomplete)]


@pytest.fixture
def stocked(server: CannedServer) -> CannedServer:
    server.says("GET /v1/runs", {"runs": [run(), run(run_id=OTHER)], "next": None})
    server.says("GET /v1/jobs", {"jobs": [job(job_id="daily_report"), job(job_id=RUN_ID)], "next": None})
    server.says("GET /v1/dead-letters", {"dead_letters": [letter()], "next": None})
    server.says("GET /v1/workers", {"workers": [worker(RUN_ID, "web-1"), worker(OTHER, "web-2", "LOST")]})
    server.says("GET /v1/tasks", {"tasks": [{"task": "invoice.send", "queues": ["heavy"]}]})
    server.says("GET /v1/queues", {"queues": [{"name": "heavy", "depth": 3}, {"name": "light", "depth": 0}]})
    limits = [{"limit_id": 7, "name": "task:charge"}, {"limit_id": 8, "name": "task:charge:payload.account"}]
    server.says("GET /v1/limits", {"limits": limits, "next": None})
    breakers = [
        {"job_id": None, "task": "charge", "state": "open"},
        {"job_id": "nightly", "task": None, "state": "closed"},
    ]
    server.says("GET /v1/breakers", {"breakers": breakers})
    return server


def test_ids_tasks_and_queues_are_offered(stocked: CannedServer) -> None:
    assert offered(completing.runs_and_jobs) == ["daily_report", "6f0a8b11", "report", "6f0a8b11", "6f0a8b12"]
    assert offered(completing.runs_and_jobs, "rep") == ["report"]  # a job that only its runs know
    assert offered(completing.runs_and_jobs, "6f0a8b12") == ["6f0a8b12"]
    assert offered(completing.runs_and_jobs, OTHER[:-3]) == [OTHER]  # a whole id was begun
    assert offered(completing.jobs, "dai") == ["daily_report"]
    assert stocked.asked[-1][1] == "q=dai&limit=50"
    assert offered(completing.dead_letters) == ["6f0a8b11"]
    assert offered(completing.workers) == ["web-1", "6f0a8b11"]
    assert offered(completing.tasks, "inv") == ["invoice.send"]
    assert offered(completing.queues, "l") == ["light"]
    assert offered(completing.limits) == ["charge", "7", "8"]
    assert offered(completing.breakers) == ["charge", "nightly"]


def test_nothing_is_offered_without_a_server(monkeypatch: pytest.MonkeyPatch, server: CannedServer) -> None:
    assert offered(completing.jobs, url="http://127.0.0.1:1") == []
    assert offered(completing.jobs, url="nonsense") == []
    assert offered(completing.jobs, token_file=Path("/nowhere")) == []
    server.says("GET /v1/jobs", {"detail": "no"}, status=401)
    assert offered(completing.jobs) == []


@pytest.mark.parametrize(
    "evil", ["x$(touch evil)", "x`id`", "x\\$(id)", 'x"', "x'", "x;y", "*", "x y", "x\n", "\x1b[31m"]
)
def test_what_a_shell_could_run_is_not_offered(server: CannedServer, evil: str) -> None:
    server.says("GET /v1/jobs", {"jobs": [job(job_id=evil), job(job_id="good", name=evil)], "next": None})
    [(value, words)] = completing.jobs(SimpleNamespace(params={}), "")  # type: ignore[arg-type]
    assert value == "good"
    assert not set(words) & set("$`\\\"';*()[\n\x1b")


def test_the_shells_are_given_a_script(call: Call) -> None:
    for shell, mark in (("bash", "complete -o default"), ("zsh", "compdef"), ("fish", "complete --command")):
        code, out, _ = call("completion", shell)
        assert code == 0 and mark in out
    code, _, err = call("completion", "tcsh")
    assert code == 2 and "bash, zsh, fish" in err


@pytest.fixture
def with_program(tmp_path: Path) -> dict[str, str]:
    """An environment in which a shell finds the program, and no settings of a user."""
    program = tmp_path / "mainspring"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m mainspring "$@"\n')
    program.chmod(0o755)
    own = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    return {**os.environ, **own, "TERM": "dumb"}


def installed(shell: str) -> str:
    return shutil.which(shell) or pytest.skip(f"{shell} is not installed")


@pytest.mark.slow
def test_bash_completes(stocked: CannedServer, call: Call, with_program: dict[str, str]) -> None:
    """Also under an earlier name, and for a noun without a verb: its verbs, and the ids of its default verb."""
    script = call("completion", "bash")[1]
    lines = ["pause da", "job pause da", "job da", "job p", "job --upc", "job report --upc", "dead-letter re", "toke"]
    asks = "\n".join(
        f"COMP_WORDS=(mainspring {line}); COMP_CWORD={len(line.split())}; _mainspring_completion mainspring; "
        'echo "${COMPREPLY[@]}"'
        for line in lines
    )
    argv = [installed("bash"), "--norc", "-c", f"{script}\n{asks}"]
    done = subprocess.run(argv, env=with_program, capture_output=True, text=True, timeout=60)
    offers = [
        "daily_report",
        "daily_report",
        "daily_report",
        "pause",
        "--upcoming",
        "--upcoming",
        "replay report",
        "token",
    ]
    assert (done.stdout.splitlines(), done.stderr) == (offers, "")


def test_fish_completes(stocked: CannedServer, call: Call, with_program: dict[str, str]) -> None:
    script = call("completion", "fish")[1]
    argv = [installed("fish"), "--no-config", "-c", f"{script}\ncomplete -C 'mainspring job pause da'"]
    done = subprocess.run(argv, env=with_program, capture_output=True, text=True, timeout=60)
    assert (done.stdout.split("\t")[0].strip(), done.stderr) == ("daily_report", "")


def test_zsh_completes(stocked: CannedServer, call: Call, with_program: dict[str, str], tmp_path: Path) -> None:
    """Its completion needs a terminal and a line that is edited."""
    (tmp_path / "script").write_text(call("completion", "zsh")[1])
    master, terminal = pty.openpty()
    argv = [installed("zsh"), "--no-rcs", "--interactive"]
    with subprocess.Popen(argv, env=with_program, stdin=terminal, stdout=terminal, stderr=terminal) as zsh:
        os.close(terminal)
        try:
            os.write(
                master, f"autoload -Uz compinit; compinit -D -u; source {tmp_path}/script; print re''ady\n".encode()
            )
            read_until(master, b"ready")
            os.write(master, b"mainspring job pause da\t")
            read_until(master, b"daily_report")
        finally:
            zsh.kill()
            os.close(master)


def read_until(master: int, words: bytes) -> None:
    said = b""
    while words not in said:
        assert select.select([master], [], [], 60)[0], said
        said += os.read(master, 65536)
