"""Kinds of task of other packages: found by their entry point, and used by servers, workers and the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kinds.greeting import FILES, install
from tests.processes.cluster import START, Cluster, eventually

pytestmark = pytest.mark.anyio


def with_package(folder: Path, code: str) -> Any:
    """What `code` prints as JSON in an interpreter that has the package."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "120"},
        capture_output=True, text=True, timeout=START, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
async def test_a_kind_of_another_package_works_from_submission_to_result(cluster: Cluster, tmp_path: Path) -> None:
    tree = install(tmp_path)
    await cluster.server(tree=tree)
    await cluster.worker("--greeting", "good day", tree=tree)
    job_id = await cluster.submit(greet={"name": "Ada"})
    run = await cluster.ended(job_id)
    assert (run["status"], run["result"]) == ("SUCCESS", "good day Ada")
    job = (await cluster.http.get(f"/v1/jobs/{job_id}")).json()
    assert (job["task"], job["greet"]) == ("greet", {"name": "Ada"})
    assert "good day Ada" in (await cluster.http.get(f"/v1/runs/{run['run_id']}/logs")).text
    # As the payload of the task.
    run = await cluster.ended(await cluster.submit(task="greet", payload={"name": "Bo", "loud": True}))
    assert run["result"] == "GOOD DAY BO"
    refused = await cluster.http.post("/v1/jobs", json={"greet": {"name": ""}})
    assert (refused.status_code, refused.json()["field"]) == (422, "greet.name")
    refused = await cluster.http.post("/v1/jobs", json={"greet": {"nam": "Ada"}})
    assert (refused.status_code, refused.json()["hint"]) == (422, "did you mean 'name'?")
    refused = await cluster.http.post("/v1/jobs", json={"greet": {"name": "x"}, "command": "true"})
    assert refused.json()["detail"] == "command and greet cannot be combined"


@pytest.mark.slow
async def test_a_server_without_the_package_refuses_the_jobs_and_names_it(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.server()
    unknown = await cluster.http.post("/v1/jobs", json={"greet": {"name": "Ada"}})
    assert (unknown.status_code, unknown.json()["code"]) == (422, "unknown_field")
    await cluster.worker(tree=install(tmp_path))

    async def refused() -> Any:
        answer = await cluster.http.post("/v1/jobs", json={"task": "greet", "payload": {"name": "Ada"}})
        return answer if answer.status_code == 422 else None

    by_task = (await eventually(refused, START, "the server has heard of the kind")).json()
    by_field = (await cluster.http.post("/v1/jobs", json={"greet": {"name": "Ada"}})).json()
    for problem, field in ((by_task, "task"), (by_field, "greet")):
        assert (problem["code"], problem["field"]) == ("unknown_kind", field)
        assert problem["detail"] == "this server does not have the kind of task 'greet'"
        assert "install the package mainspring-greeting" in problem["hint"]
    step = {"workflow_id": "w", "steps": [{"name": "one", "greet": {"name": "Ada"}}]}
    by_step = (await cluster.http.post("/v1/workflows", json=step)).json()
    assert (by_step["code"], by_step["field"]) == ("unknown_kind", "steps[0].greet")


def test_the_command_line_has_the_options_of_installed_kinds(tmp_path: Path) -> None:
    code = """
import contextlib, io, json
from mainspring.cli.main import main
def shown(*words):
    with contextlib.redirect_stdout(io.StringIO()) as text:
        main([*words, "--help"])
    return text.getvalue()
print(json.dumps({verb: shown(*verb.split()) for verb in ("submit", "job edit", "worker start", "up")}))
"""
    helps = with_package(install(tmp_path), code)
    for verb in ("submit", "job edit"):
        assert "--greet " in helps[verb] and "--voice" in helps[verb] and "Greet somebody." in helps[verb]
    for verb in ("worker start", "up"):
        assert "--greeting" in helps[verb]


def test_a_file_that_was_only_found_does_not_configure_kinds(tmp_path: Path) -> None:
    """It can have come with a repository. A kind may use what is named there: files with secrets, or addresses."""
    code = """
import contextlib, io, json, os, pathlib
from mainspring.cli.main import main
folder = pathlib.Path(os.environ["PYTHONPATH"]) / "cloned"
folder.mkdir()
(folder / "mainspring.toml").write_text('greeting = "evil"')
os.chdir(folder)
with contextlib.redirect_stderr(io.StringIO()) as text:
    codes = [main([verb]) for verb in ("worker", "up")]
print(json.dumps([codes, text.getvalue()]))
"""
    codes, said = with_package(install(tmp_path), code)
    assert 0 not in codes
    assert said.count("greeting is not used: the file was only found here") == 2


def test_the_options_describe_the_call(tmp_path: Path) -> None:
    code = """
import json
from mainspring.cli.task_options import flags_of_kinds
from mainspring.kinds.registry import kind_of_task
kind = kind_of_task("greet")
call = kind.part("options").OPTIONS.call({"greet": "Ada", "voice": "loud"})
print(json.dumps([kind.package, call, flags_of_kinds({"greeting": "hi"})]))
"""
    assert with_package(install(tmp_path), code) == [
        "mainspring-greeting", {"name": "Ada", "loud": True}, ["--greeting", "hi"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        ("greeting/__init__.py", "raise RuntimeError('no luck')", "cannot be imported: no luck"),
        ("greeting/__init__.py", "KIND = 3", "is not a TaskKind with a plain name"),
        (
            "greeting/__init__.py",
            "from mainspring.kinds.registry import TaskKind\nKIND = TaskKind('http', folder=__name__)",
            "has the name of another one",
        ),
        (
            "greeting/__init__.py",
            "from mainspring.kinds.registry import TaskKind\nKIND = TaskKind('queue', folder=__name__)",
            "has the name of a field of jobs",
        ),
    ],
)
def test_a_kind_that_cannot_be_used_is_left_out_with_a_reason(tmp_path: Path, path: str, text: str, words: str) -> None:
    code = """
import json
import mainspring.wire.jobs
from mainspring.kinds.registry import problems_of_kinds, task_kinds
print(json.dumps([[kind.name for kind in task_kinds() if kind.package], problems_of_kinds()]))
"""
    kinds, problems = with_package(install(tmp_path, {**FILES, path: text}), code)
    assert kinds == []
    assert len(problems) == 1 and words in problems[0]
