"""Drain, labels, and the progress bar of a run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mainspring.cli.worker import find_sandbox
from mainspring.kinds.shell.sandbox.bubblewrap import NoSandbox
from mainspring.roles.worker import WorkerOptions, offered_labels
from tests.cli.test_verbs import Call
from tests.sdk.wire_samples import run
from tests.worker.sandboxes import needs_sandbox

from .conftest import CannedServer

ONE = "0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11"
TWO = "0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b12"
RUN_ID = run()["run_id"]


def test_a_worker_names_a_sandbox_that_there_is_not(server: CannedServer, call: Call, monkeypatch: Any) -> None:
    code, _, err = call("worker", "--sandbox", "jail")
    assert (code, "'jail' is not a sandbox" in err, "bubblewrap" in err) == (2, True, True)
    monkeypatch.setenv("PATH", "/nowhere")
    code, _, err = call("worker", "--sandbox", "bubblewrap")
    assert (code, "(bwrap) is not installed" in err, "apt install bubblewrap" in err) == (2, True, True)
    assert server.asked == []


@pytest.fixture
def program_folder() -> Iterator[Path]:
    """Every account may run what is in it. That of pytest is private."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_worker_does_not_start_where_its_sandbox_cannot_be_built(
    server: CannedServer, call: Call, program_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where user namespaces are forbidden."""
    wrapper = program_folder / "bwrap"
    wrapper.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program_folder}:{os.environ['PATH']}")
    code, _, err = call("worker", "--sandbox", "bubblewrap")
    assert (code, "No permissions to create new namespace" in err, "user namespaces" in err) == (2, True, True)
    found = find_sandbox([], needed=False)
    assert isinstance(found, NoSandbox)
    options = WorkerOptions("http://h", "t", None, 1, None, None, "info", labels={"zone": "eu"}, sandbox=found)
    assert offered_labels(options) == {"zone": "eu"}
    assert server.asked == []


def test_a_worker_says_which_path_its_sandbox_must_not_show(server: CannedServer, call: Call, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("ms_secret")
    code, _, err = call("worker", "--token-file", str(token), "--sandbox-read", str(tmp_path))
    assert (code, "--sandbox-read" in err, "belongs to this worker" in err) == (2, True, True)
    (tmp_path / "app").mkdir()
    app_token = tmp_path / "app" / "token"
    app_token.write_text("ms_secret")
    named = ("--token-file", str(token), "--app-token-file", str(app_token), "--app", "examples.hello:app")
    for path in (app_token, app_token.parent):  # the last option would be refused later: no worker starts in this test
        code, _, err = call("worker", *named, "--sandbox-read", str(path), "--process-isolation", "no")
        assert (code, "--sandbox-read" in err, "belongs to this worker" in err) == (2, True, True)
    assert server.asked == []


@needs_sandbox
def test_a_worker_that_can_build_the_sandbox_has_a_label_for_it() -> None:
    found = find_sandbox([], needed=True)
    options = WorkerOptions("http://h", "t", None, 1, None, None, "info", labels={"zone": "eu"}, sandbox=found)
    assert offered_labels(options) == {"zone": "eu", "sandbox": "bubblewrap"}


def worker(worker_id: str, name: str, state: str = "LIVE", **changes: Any) -> dict[str, Any]:
    return {
        "worker_id": worker_id, "name": name, "state": state, "queues": ["default"], "tasks": ["shell"], "slots": 4,
        "running": 0, "labels": {}, "version": "1", "registered_at": "2030-01-01T00:00:00Z", "last_beat_at": None,
        **changes,
    }  # fmt: skip


def test_workers_shows_labels(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/workers", {"workers": [worker(ONE, "web-1", labels={"zone": "eu", "gpu": "a100"})]})
    code, out, _ = call("workers")
    assert code == 0
    assert "gpu=a100, zone=eu" in out


def test_drain_takes_an_id_or_the_name_of_a_living_worker(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/workers", {"workers": [worker(ONE, "web-1"), worker(TWO, "web-1", "STOPPED")]})
    server.says(f"POST /v1/workers/{ONE}:drain", worker(ONE, "web-1", "DRAINING", running=2), status=202)
    for named in (ONE, "web-1"):
        code, out, err = call("drain", named)
        assert (code, err) == (0, "")
        assert out == f"worker web-1 ({ONE}) is DRAINING; 2 run(s) to finish\n"


@pytest.mark.parametrize(
    ("states", "code", "words"),
    [(["LIVE", "LIVE"], 4, f"{ONE}, {TWO}"), (["LOST"], 4, "has ended: LOST"), ([], 3, "no worker 'web-1'")],
)
def test_a_name_that_is_not_one_living_worker_is_refused(
    server: CannedServer, call: Call, states: list[str], code: int, words: str
) -> None:
    found = [worker(worker_id, "web-1", state) for worker_id, state in zip((ONE, TWO), states, strict=False)]
    server.says("GET /v1/workers", {"workers": found})
    ended, out, err = call("drain", "web-1")
    assert (ended, out) == (code, "")
    assert words in err


def test_a_watched_run_shows_its_progress(server: CannedServer, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    half = run(status="RUNNING", end_time=None, progress={"fraction": 0.4, "message": "page 40 of 100"})
    server.says(f"GET /v1/runs/{RUN_ID}", half, run(status="RUNNING", end_time=None), half, run(result="done"))
    code, out, err = call("run", RUN_ID, "--watch")
    assert (code, out) == (0, "done\n")
    assert "40%" in err and "page 40 of 100" in err and "━" in err


def test_a_run_shows_how_far_it_has_come(server: CannedServer, call: Call) -> None:
    server.says(f"GET /v1/runs/{RUN_ID}", run(status="RUNNING", progress={"fraction": 0.4, "message": "page 40"}))
    _, out, _ = call("run", RUN_ID)
    assert "40% page 40" in out
