"""What the commands about workflows share: their arguments, one workflow on the screen, and a run until its end."""

from __future__ import annotations

import shutil
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.exit_codes import FAILURE, INTERRUPTED
from mainspring.cli.screen import has_width, say, show_fields, show_json, show_line, stdout
from mainspring.cli.text_formats import TimeFormat, span
from mainspring.kinds.registry import task_kinds

if TYPE_CHECKING:
    from rich.text import Text

    from mainspring.sdk.client.client import Client
    from mainspring.wire.workflows import WorkflowRunView, WorkflowView

WorkflowArgument = Annotated[
    str,
    typer.Argument(
        metavar="WORKFLOW",
        help="The workflow's id. Its end or its beginning is enough.",
        autocompletion=completing.workflows,
    ),
]
WorkflowRunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The id of a workflow run, or of a workflow: its latest run is used. The end or the beginning is enough.",
        autocompletion=completing.workflow_runs,
    ),
]
FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="YAML or JSON, one workflow or several documents; - is stdin.")
]
_PATIENCE = 60.0  # waiting survives a restart of the server
_EVERY = 1.0


def show_workflow(view: WorkflowView, *, as_json: bool) -> None:
    """The state of a workflow after a change."""
    if as_json:
        show_json(view)
    else:
        show_line(f"workflow {view.workflow_id} is {view.status}")


def show_whole_workflow(view: WorkflowView, times: TimeFormat) -> None:
    """All fields of a workflow, and one line for each of its steps."""
    import msgspec

    show_fields([
        ("workflow", view.workflow_id),
        ("name", view.name),
        ("status", view.status if view.pause_reason is None else f"{view.status}: {view.pause_reason}"),
        ("schedule", view.schedule),
        ("in words", view.schedule_in_words or None),
        ("next fire", None if view.next_fire_at is None else times.full(view.next_fire_at)),
        ("parameters", msgspec.json.encode(view.parameters).decode() if view.parameters else None),
        ("timeout", None if view.timeout is None else span(view.timeout)),
        ("queue", f"{view.queue}, priority {view.priority}"),
        ("overlap", f"{view.overlap}, misfire {view.misfire.policy}"),
        ("labels", ", ".join(f"{key}={value}" for key, value in sorted(view.labels.items())) or None),
        ("owner", view.owner),
        ("declared by", view.declared_by),
        ("created by", None if view.created_by is None else view.created_by.name),
        ("description", view.description),
        ("created", f"{times.full(view.created_at)}, version {view.version}"),
        ("latest run", None if view.latest_run is None else f"{view.latest_run.status} ({view.latest_run.run_id})"),
        ("steps", str(view.step_count)),
        *((f"  {step.name}", _step_in_words(step)) for step in view.steps),
    ])  # fmt: skip


def _step_in_words(step: object) -> str:
    from mainspring.wire.workflows import StepIn

    assert isinstance(step, StepIn)
    words = step.task or step.job_type or _call_in_words(step)
    if step.depends_on:
        words += f", after {', '.join(step.depends_on)}"
    if step.rule not in (None, "all_success"):
        words += f" ({step.rule})"
    return words + (", mapped" if step.map is not None else "")


def _call_in_words(step: object) -> str:
    for kind in task_kinds():
        if (call := getattr(step, kind.field)) is not None:
            words: str = kind.part("call").in_words(call)
            return words if kind.name == "shell" else f"{kind.name} {words}"
    return _wait_in_words(step)


def _wait_in_words(step: object) -> str:
    from mainspring.wire.workflows import StepIn

    assert isinstance(step, StepIn)
    if step.workflow is not None:
        return f"workflow {step.workflow}"
    if step.wait is None:
        return "" if step.sleep is None else "sleep"
    return f"event {step.wait.event}" if step.wait.event is not None else f"approval {step.wait.approval}"


def print_tree(view: WorkflowRunView) -> None:
    """The run as a tree, as it is now."""
    from mainspring.cli.workflow_tree import tree_lines

    console = stdout()
    for line in tree_lines(view, datetime.now(UTC), console.width if has_width() else None):
        console.print(line, soft_wrap=True)


def watch_workflow_run(client: Client, run_id: str, *, as_json: bool, interval: float = _EVERY) -> int:
    """Show the run as a tree until it ends. Returns the exit code: 0 for SUCCESS."""
    from mainspring.cli.watching import watch
    from mainspring.cli.workflow_tree import tree_lines
    from mainspring.sdk.client.handle import ENDED_NAMES

    client.patience = _PATIENCE
    if not as_json and sys.stdout.isatty():
        seen: list[WorkflowRunView] = []

        def read() -> WorkflowRunView:
            seen[:] = [client.workflow_run(run_id)]
            return seen[0]

        def draw(view: WorkflowRunView, width: int) -> list[Text]:
            height = None if view.status in ENDED_NAMES else shutil.get_terminal_size().lines - 2
            return tree_lines(view, datetime.now(UTC), width, height)

        code = watch(
            "This run",
            read,
            draw,
            interval,
            over=lambda view: view.status in ENDED_NAMES,
        )
        if code:
            say(f"stopped watching; the run continues. To stop it: mainspring workflow cancel {run_id}")
            return code
        return 0 if seen[0].status == "SUCCESS" else FAILURE
    try:
        view = client.workflow_run_handle(run_id).wait()
    except KeyboardInterrupt:
        say(f"\nstopped watching; the run continues. To stop it: mainspring workflow cancel {run_id}")
        return INTERRUPTED
    if as_json:
        show_json(view)
    else:
        print_tree(view)
    return 0 if view.status == "SUCCESS" else FAILURE
