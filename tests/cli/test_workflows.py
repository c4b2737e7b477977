"""`mainspring workflow`: files, what is sent for them, lists, and a run as a tree."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainspring.cli import completing
from mainspring.cli.commands import load_noun
from mainspring.cli.workflow_file import read_workflows
from mainspring.cli.workflow_tree import tree_lines
from mainspring.domain.errors import InvalidInput
from mainspring.wire.workflows import MapProgress, StepRunView, WorkflowRunView
from tests.sdk import wire_samples
from tests.sdk.wire_samples import MOMENT, job

from .conftest import CannedServer
from .test_completion import offered

Call = Callable[..., tuple[int, str, str]]
RUN = "0197a6c0-5d1e-7c3a-9d50-2f1e6f0a8b11"
FILE = """\
workflow_id: nightly
schedule: {cron: "0 2 * * *", timezone: Europe/Berlin}
parameters: {region: no, day: 2026-01-01}   # texts, as YAML 1.2 reads them
steps:
- name: extract
  task: etl.extract
  payload: {region: {$parameter: region}, limit: 10, ratio: 0.5, all: true, none: ~}
- name: report
  command: python report.py
  depends_on: [extract]
"""


def workflow(**changes: Any) -> dict[str, Any]:
    return {
        "workflow_id": "nightly", "name": "nightly", "status": "SCHEDULED", "schedule_type": "CRON",
        "schedule": "0 2 * * * (Europe/Berlin)", "schedule_in_words": "at 02:00", "timezone": "Europe/Berlin",
        "misfire": {"policy": "once", "cap": 9, "grace": None}, "overlap": "skip", "timeout": None, "queue": "default",
        "priority": "normal", "owner": None, "description": None, "labels": {}, "step_count": 2, "next_fire_at": MOMENT,
        "parameters": {"region": "no", "day": "2026-01-01"}, "last_fired_for": None, "version": 3,
        "definition_version": 1, "created_at": MOMENT, "updated_at": MOMENT, **changes,
    }  # fmt: skip


def step(name: str, status: str, *after: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, "task": "t", "status": status, "run_id": RUN, "depends_on": list(after), **changes}


def run(status: str = "RUNNING", **changes: Any) -> dict[str, Any]:
    steps = [
        step("extract", "SUCCESS", start_time=MOMENT, end_time=MOMENT),
        step("resize", "RUNNING", "extract",
             map={"total": 100, "created": 60, "succeeded": 39, "failed": 1, "skipped": 0}),
        step("load", "FAILED", "extract", attempt_number=2, max_attempts=4, error_message="OSError: no disk"),
        step("report", "WAITING", "load", "resize"),
    ]  # fmt: skip
    return {
        "run_id": RUN, "workflow_id": "nightly", "name": "nightly", "status": status, "reason": None,
        "trigger": "schedule", "scheduled_for": MOMENT, "created_at": MOMENT, "start_time": None, "end_time": None,
        "duration": None, "definition_version": 1, "generation": 1, "step_count": 4, "parameters": {},
        "counts": {"SUCCESS": 1, "FAILED": 1, "RUNNING": 1, "WAITING": 1}, "steps": steps, "edges": [], **changes,
    }  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "nightly.yaml"
    path.write_text(FILE)
    return str(path)


def test_every_command_of_the_group_has_help_that_fits_and_examples(call: Call, monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    verbs = load_noun("workflow").listed
    for verb in verbs:
        code, out, _ = call("workflow", verb.name, "--help")
        assert code == 0 and max(map(len, out.splitlines())) <= 80
        assert set(verb.examples) <= {line.strip() for line in out.splitlines()}
        assert "--json" in out
    assert all(verb.name in call("workflow")[1] for verb in verbs)


def test_a_file_is_read_as_it_looks(file: str) -> None:
    [body] = read_workflows(file)
    assert body["parameters"] == {"region": "no", "day": "2026-01-01"}
    assert body["steps"][0]["payload"] == {
        "region": {"$parameter": "region"}, "limit": 10, "ratio": 0.5, "all": True, "none": None,
    }  # fmt: skip
    assert body["schedule"] == {"cron": "0 2 * * *", "timezone": "Europe/Berlin"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: a occurs twice"),
        ("a: [1\nb: 2\n", "line 2: "),
        ("- 1\n", "line 1: a workflow is a mapping"),
        ("", "is empty"),
        ("a: !x 1\n", "line 1: the tag !x is unknown"),
        ("a: &a [*a]\n", "line 1: the alias contains itself"),
        ("{[1]: 2}\n", "line 1: a name must be a text"),
        ("a: 1\nb: 1e400\n", "line 2: the number is too large"),
        ("a: 1\nb: " + "1" * 5000, "line 2: the number is too large"),
        ("a: " + "[" * 100_000, "line 1: it is nested too deeply"),
        ("a:\n" + "- " * 100_000, "line 2: it is nested too deeply"),
        ("a:\n\t- b\n", "line 2: .*not with tabs"),
        ("a:\n- b: 1\n   c: 2\n", "line 3: .*check the indentation"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=words):
        read_workflows(str(path))


@pytest.mark.parametrize(
    ("field", "line"),
    [("steps[0].name", 3), ("steps[1].depends_on[1]", 8), ("steps[1].task", 5), ("schedule.cron", 9), ("steps", 2)],
)
def test_an_error_of_the_server_names_the_line(
    server: CannedServer, call: Call, tmp_path: Path, field: str, line: int
) -> None:
    """The line of the field, or of what it is missing in."""
    path = tmp_path / "wrong.yaml"
    path.write_text(
        "workflow_id: w\nsteps:\n- name: a\n  task: t\n- name: b\n  depends_on:\n  - a\n  - x\nschedule: 7\n"
    )
    problem = {"title": "x", "status": 422, "code": "invalid_input", "detail": "it is wrong", "field": field}
    problem["type"] = "urn:mainspring:problem:invalid_input"
    server.says("POST /v1/workflows:validate", problem, status=422)
    for verb in ("check", "apply", "create"):
        code, _, err = call("workflow", verb, str(path))
        assert code == 2 and err.startswith(f"error: {field}: it is wrong ({path}, line {line})")


def test_apply_creates_changes_or_leaves_as_it_is(server: CannedServer, call: Call, file: str) -> None:
    [body] = read_workflows(file)
    server.says("POST /v1/workflows:validate", {"steps": 2, "edges": 1, "layers": 2, "first": [], "last": []})
    server.says("POST /v1/workflows", {"workflow_id": "nightly"}, status=201)
    assert call("workflow", "apply", file)[1] == "workflow nightly created\n"
    assert server.asked[-1][2]["steps"] == body["steps"]

    server.says("GET /v1/jobs/nightly", job(
        job_id="nightly", schedule="0 2 * * * (Europe/Berlin)", schedule_type="CRON", cron_expression="0 2 * * *",
        timezone="Europe/Berlin",
    ))  # fmt: skip
    server.says("GET /v1/workflows/nightly", workflow(steps=body["steps"]))
    assert call("workflow", "apply", file)[1] == "workflow nightly unchanged\n"
    assert server.asked[-1][0] == "GET /v1/jobs/nightly"
    server.says("GET /v1/workflows/nightly", workflow(steps=body["steps"][:1]))
    server.says("PATCH /v1/workflows/nightly", workflow(version=4))
    assert call("workflow", "apply", file)[1] == "workflow nightly changed, version 4: steps\n"
    assert server.asked[-1][2] == {"steps": body["steps"]}
    code, out, _ = call("workflow", "check", file)
    assert (code, out) == (0, "nightly is valid: 2 steps, 1 edge, 2 layers\n")


def test_a_run_is_a_tree_in_which_a_step_is_below_the_last_that_it_waits_for() -> None:
    view = msgspec.convert(run(), WorkflowRunView)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    lines = [line.plain for line in tree_lines(view, now, None)]
    assert lines == [
        "nightly  RUNNING  2 of 4 steps: 1 SUCCESS, 1 FAILED, 1 RUNNING, 1 WAITING",
        "└─ extract       SUCCESS    0ms",
        "   ├─ resize     RUNNING    40 of 100 members (40 %), 1 failed",
        "   └─ load       FAILED     attempt 2 of 4, OSError: no disk",
        "      └─ report  WAITING    after load, resize",
    ]
    assert max(len(line.plain) for line in tree_lines(view, now, 40)) <= 40


def test_a_deep_step_keeps_its_name_and_a_long_tree_shows_what_is_at_work() -> None:
    chain = [step(f"s{place}", "SUCCESS", *([f"s{place - 1}"] if place else [])) for place in range(200)]
    chain[100]["status"], now = "RUNNING", datetime(2026, 1, 1, tzinfo=UTC)
    view = msgspec.convert(run(steps=chain, step_count=200), WorkflowRunView)
    narrow = [line.plain for line in tree_lines(view, now, 40)]
    assert max(map(len, narrow)) <= 40 and narrow[200].split()[-2:] == ["s199", "SUCCESS"]
    assert narrow[3].startswith("      └─ s2 ")
    short = [line.plain for line in tree_lines(view, now, 80, 24)]
    assert short[1] == "98 steps above" and "s98 " in short[2] and "RUNNING" in short[4] and len(short) == 104


def test_watching_ends_with_the_run_and_the_code_says_how(server: CannedServer, call: Call) -> None:
    server.says(f"GET /v1/workflow-runs/{RUN}", run(), run(), run("SUCCESS"))
    code, out, _ = call("workflow", "watch", RUN)
    assert code == 0 and out.startswith("nightly  SUCCESS")
    latest = wire_samples.run(run_id=RUN, job_id="nightly")
    server.says("GET /v1/jobs/nightly/status", {"job_id": "nightly", "status": "SCHEDULED", "latest_run": latest})
    assert call("workflow", "watch", "nightly", "--once")[1].startswith("nightly  SUCCESS")  # its latest run
    server.says("POST /v1/workflows/nightly:runNow", {"run_id": RUN, "job_id": "nightly", "status": "QUEUED"})
    server.says(f"GET /v1/workflow-runs/{RUN}", run(), run("FAILED", reason="step load failed"))
    code, out, _ = call("workflow", "run", "nightly", "region=us", "days=[1,2]", "--watch")
    assert code == 1 and "step load failed" in out
    assert ("POST /v1/workflows/nightly:runNow", "", {"parameters": {"region": "us", "days": [1, 2]}}) in server.asked
    server.says(f"POST /v1/workflow-runs/{RUN}:rerun", run(reruns=1))
    code, out, _ = call("workflow", "rerun", RUN, "--from", "load", "--definition", "current")
    assert (code, out) == (0, f"workflow run {RUN} is RUNNING, rerun 1\n")
    assert server.asked[-1][2] == {"from": "load", "definition": "current"}
    server.says(f"POST /v1/workflow-runs/{RUN}:cancel", run("CANCELLED"))
    assert call("workflow", "cancel", RUN, "--reason", "wrong")[1] == f"workflow run {RUN} is CANCELLED\n"


def test_workflows_runs_and_steps_are_listed(server: CannedServer, call: Call) -> None:
    server.says("GET /v1/workflows", {"workflows": [workflow()], "next": None})
    server.says("GET /v1/workflows/nightly", workflow(steps=[{"name": "a", "task": "t", "depends_on": ["b"]}]))
    brief = {name: value for name, value in run().items() if name not in ("steps", "edges", "parameters")}
    server.says("GET /v1/workflows/nightly/runs", {"runs": [brief], "next": None})
    server.says(f"GET /v1/workflow-runs/{RUN}/steps", {"steps": run()["steps"], "next": "c"})
    server.says("GET /v1/runs", {"runs": [{"run_id": RUN, "job_id": "nightly", "status": "RUNNING"}]})
    code, out, err = call("workflow", "list")
    assert "nightly   SCHEDULED" in out, err
    assert "t, after b" in call("workflow", "show", "nightly")[1]
    assert "2 of 4 steps" in call("workflow", "runs", "nightly")[1], "also if the run is forgotten meanwhile"
    server.says(f"GET /v1/workflow-runs/{RUN}", run())
    assert "resize: 40 of 100 members (40 %), 1 failed" in call("workflow", "runs", "nightly")[1]
    code, out, err = call("workflow", "steps", RUN, "--status", "failed")
    assert code == 0 and "OSError: no disk" in out and "--cursor c" in err
    for verb in ("pause", "resume"):
        server.says(f"POST /v1/workflows/nightly:{verb}", workflow(status="PAUSED"))
        assert call("workflow", verb, "nightly")[1] == "workflow nightly is PAUSED\n"
    server.says("DELETE /v1/workflows/nightly", workflow(status="CANCELLED"))
    assert call("workflow", "delete", "nightly")[1] == "workflow nightly is CANCELLED\n"
    assert offered(completing.workflows, "nig") == ["nightly"]
    assert offered(completing.workflow_runs) == ["6f0a8b11"]


def test_a_large_map_shows_its_pace_and_how_long_the_rest_takes() -> None:
    now = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
    progress = MapProgress(total=100_000, created=60_000, succeeded=40_000, failed=800, skipped=400)
    step = StepRunView("resize", "t", "RUNNING", "r", start_time=now - timedelta(seconds=33), map=progress)
    assert "41,200 of 100,000 members (41 %), 800 failed, 400 skipped, 1,248/s, 47.1s left, 33s" in _noted(step, now)
    slow = MapProgress(total=10, created=10, succeeded=1, failed=0, skipped=0)
    step = StepRunView("slow", "t", "RUNNING", "r", created_at=now - timedelta(minutes=2), map=slow)
    assert "1 of 10 members (10 %), 0.5/min, 18m left" in _noted(step, now)
    for quiet in (
        StepRunView("new", "t", "RUNNING", "r", start_time=now, map=progress),
        StepRunView("none", "t", "RUNNING", "r", start_time=now - timedelta(hours=1), map=MapProgress(5, 0, 0, 0, 0)),
        StepRunView("over", "t", "SUCCESS", "r", start_time=now - timedelta(hours=1), map=progress),
    ):
        assert "left" not in _noted(quiet, now)


def _noted(step: StepRunView, now: datetime) -> str:
    fields: dict[str, Any] = dict.fromkeys(WorkflowRunView.__struct_fields__)
    fields |= {"workflow_id": "w", "status": "RUNNING", "counts": {}, "step_count": 1, "reruns": 0, "steps": [step]}
    return tree_lines(WorkflowRunView(**fields), now, None)[1].plain  # type: ignore[arg-type]
