"""`mainspring workflow`"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainspring.cli import completing
from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.figures import counted
from mainspring.cli.find_id import call_for_job
from mainspring.cli.listing import (
    Listing,
    ListOptions,
    PageCursor,
    PageLimit,
    UtcFlag,
    more_pages,
    search_list,
    show_list,
    with_list_options,
)
from mainspring.cli.noun import Noun
from mainspring.cli.screen import say, show_json, show_line
from mainspring.cli.table import WHOLE_ID, Column
from mainspring.cli.task_options import payload_of
from mainspring.cli.text_formats import TimeFormat, span
from mainspring.cli.watching import parse_interval
from mainspring.cli.which_run import call_for_run
from mainspring.cli.workflow_file import read_with_lines
from mainspring.cli.workflow_showing import (
    FileArgument,
    WorkflowArgument,
    WorkflowRunArgument,
    print_tree,
    show_whole_workflow,
    show_workflow,
    watch_workflow_run,
)
from mainspring.cli.workflow_tree import counts_in_words, maps_in_words
from mainspring.kernel.texts import error_line

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

_MOST_WITH_MAPS = 5  # runs of a list whose maps are read too
noun = Noun("workflow", "Workflows: jobs that depend on each other, and their runs.")
_COLUMNS = (
    Column("WORKFLOW", least=WHOLE_ID, ids=True),
    Column("STATUS"),
    Column("STEPS", rank=3, right=True),
    Column("SCHEDULE", rank=2, least=10),
    Column("NEXT FIRE", rank=1),
    Column("LATEST RUN", rank=1),
    Column("OWNER", rank=4, least=6),
)
_RUNS_COLUMNS = (
    Column("RUN", ids=True),
    Column("STATUS"),
    Column("DUE", rank=1),
    Column("TOOK", rank=3, right=True),
    Column("STEPS", rank=2, least=14),
    Column("NOTE", rank=4, least=18),
)
_STEPS_COLUMNS = (
    Column("STEP", least=12),
    Column("MEMBER", rank=1, right=True),
    Column("STATUS"),
    Column("RUN", ids=True),
    Column("TRY", rank=4, right=True),
    Column("TOOK", rank=3, right=True),
    Column("NOTE", rank=2, least=18),
)


@noun.verb("create", "mainspring workflow create nightly.yaml", "cat nightly.json | mainspring workflow create -")
def create(
    server: Server,
    file: FileArgument,
    as_json: JsonFlag = False,
) -> None:
    """Create the workflows of a file. One that exists is refused: `mainspring workflow apply` changes it. Prints their
    ids."""
    from mainspring.cli.workflow_file import read_with_lines

    workflows = read_with_lines(file)
    with server.connect() as client:
        for body, lines in workflows:
            with lines.named():
                client.check_workflow(body)  # nothing is created if one of them is wrong
        for body, _ in workflows:
            made = client.create_workflow(body)
            if as_json:
                show_json(made)
            else:
                show_line(made.workflow_id)


@noun.verb("apply", "mainspring workflow apply nightly.yaml", "mainspring workflow apply - < nightly.json")
def apply(
    server: Server,
    file: FileArgument,
    as_json: JsonFlag = False,
) -> None:
    """Make the workflows of a file so: create them, or change what differs. Fields that the file does not set stay as
    they are. Runs that have fired keep the definition that they were fired with."""
    from mainspring.cli.workflow_file import read_with_lines

    workflows = read_with_lines(file)
    bodies = [body for body, _ in workflows]
    _check_ids(bodies)
    with server.connect() as client:
        for body, lines in workflows:
            with lines.named():
                client.check_workflow(body)  # nothing is changed if one of them is wrong
        for body in bodies:
            done, view = _apply(client, body)
            if as_json:
                show_json(view)
            else:
                show_line(f"workflow {body['workflow_id']} {done}")


def _check_ids(bodies: list[dict[str, Any]]) -> None:
    from mainspring.domain.errors import InvalidInput

    for body in bodies:
        if not body.get("workflow_id"):
            raise InvalidInput(
                "a workflow of the file has no id", field="workflow_id", hint="add a line such as workflow_id: nightly"
            )


def _apply(client: Client, body: dict[str, Any]) -> tuple[str, Any]:
    """What was done, and the server's answer."""
    from mainspring.domain.errors import NotFound
    from mainspring.sdk.app.ensure_workflows import workflow_differences

    workflow_id = body["workflow_id"]
    try:
        before = client.workflow(workflow_id)
    except NotFound:
        return "created", client.create_workflow(body)
    if before.status == "CANCELLED":
        return "created again", client.create_workflow(body)
    changes = workflow_differences(before, client.job(workflow_id), body)
    if not changes:
        return "unchanged", before
    after = client.update_workflow(workflow_id, if_version=before.version, **changes)
    return f"changed, version {after.version}: {', '.join(changes)}", after


@noun.verb("check", "mainspring workflow check nightly.yaml", "mainspring workflow check nightly.yaml --json")
def check(
    server: Server,
    file: FileArgument,
    as_json: JsonFlag = False,
) -> None:
    """Check the workflows of a file, as `mainspring workflow apply` does. Nothing is stored."""
    workflows = read_with_lines(file)
    with server.connect() as client:
        for body, lines in workflows:
            with lines.named():
                found = client.check_workflow(body)
            if as_json:
                show_json(found)
                continue
            name = body.get("workflow_id") or "the workflow"
            sizes = (counted(found.steps, "step"), counted(found.edges, "edge"), counted(found.layers, "layer"))
            show_line(f"{name} is valid: {', '.join(sizes)}")


@noun.verb("list", "mainspring workflow list", "mainspring workflow list --q nightly --watch")
@with_list_options
def list_(
    q: Annotated[
        str | None, typer.Option("--q", metavar="TEXT", help="Text in the name or the id.", show_default=False)
    ] = None,
    status: Annotated[
        str | None, completing.word_option("--status", "scheduled", "paused", "cancelled", "completed")
    ] = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    *,
    options: ListOptions,
) -> None:
    """List workflows, newest first."""

    def read(client: Client) -> Listing:
        from mainspring.sdk.client import calls

        page = search_list(client, options, calls.workflows(q=q, status=status, limit=limit, cursor=cursor))
        return Listing(
            page,
            _COLUMNS,
            lambda times: [
                (
                    one.workflow_id,
                    one.status,
                    f"{one.step_count:,}",
                    one.schedule,
                    "" if one.next_fire_at is None else times.brief(one.next_fire_at),
                    "" if one.latest_run is None else one.latest_run.status,
                    one.owner or "",
                )
                for one in page.workflows
            ],
            "no workflows; to create one: mainspring workflow apply FILE",
            more_pages(page.next),
        )

    show_list(options, read)


@noun.verb(
    "show",
    "mainspring workflow show nightly",
    "mainspring workflow show nightly --json",
    "mainspring workflow show nightly --definition 2",
)
def show(
    server: Server,
    workflow: WorkflowArgument,
    definition: Annotated[
        int | None, typer.Option("--definition", metavar="N", help="The steps of this version of the definition.")
    ] = None,
    utc: UtcFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Show a workflow: its schedule, its parameters and its steps."""
    with server.connect() as client:
        view = call_for_job(client, workflow, lambda found: client.workflow(found, definition=definition))
    if as_json:
        show_json(view)
    else:
        show_whole_workflow(view, TimeFormat(datetime.now(UTC), utc))


@noun.verb(
    "run", "mainspring workflow run nightly --watch", "mainspring workflow run nightly region=us --idempotency-key us-1"
)
def run(
    server: Server,
    workflow: WorkflowArgument,
    parameters: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Values of parameters, for this run.")
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option("--idempotency-key", metavar="K", help="A repeated command with this key starts no second run."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "--wait", help="Show the run until it ends. Exit with 0 only on SUCCESS.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a workflow once now, in addition to its schedule. Prints the id of the workflow run."""
    with server.connect() as client:
        given = payload_of(None, parameters or [])
        accepted = call_for_job(
            client, workflow, lambda found: client.start_workflow(found, given, idempotency_key=idempotency_key)
        )
        if watch:
            if not as_json:
                say(f"run {accepted.run_id}")
            raise typer.Exit(watch_workflow_run(client, accepted.run_id, as_json=as_json))
    if as_json:
        show_json(accepted)
    else:
        show_line(accepted.run_id)
        if accepted.status == "SKIPPED":
            say(f"SKIPPED: {accepted.reason}")


@noun.verb("runs", "mainspring workflow runs nightly", "mainspring workflow runs nightly --status failed --limit 5")
@with_list_options
def runs(
    workflow: WorkflowArgument,
    status: Annotated[
        str | None,
        typer.Option(
            "--status",
            help="pending, running, success, failed, ...",
            autocompletion=completing.words("pending", "waiting", "running", "success", "failed", "cancelled"),
            show_default=False,
        ),
    ] = None,
    limit: PageLimit = 20,
    cursor: PageCursor = None,
    *,
    options: ListOptions,
) -> None:
    """List the runs of a workflow, newest first."""

    def read(client: Client) -> Listing:
        page = call_for_job(
            client, workflow, lambda found: client.workflow_runs(found, status=status, limit=limit, cursor=cursor)
        )
        at_work = [] if options.as_json else [run.run_id for run in page.runs if run.status == "RUNNING"]
        maps = {run_id: _maps_of(client, run_id) for run_id in at_work[:_MOST_WITH_MAPS]}
        return Listing(
            page,
            _RUNS_COLUMNS,
            lambda times: [
                (
                    run.run_id,
                    run.status,
                    times.brief(run.scheduled_for),
                    "" if run.duration is None else span(run.duration),
                    counts_in_words(run.counts, run.step_count),
                    error_line(run.reason or "") or maps.get(run.run_id, ""),
                )
                for run in page.runs
            ],
            "no runs",
            more_pages(page.next),
        )

    show_list(options, read)


def _maps_of(client: Client, run_id: str) -> str:
    """The maps of the run that are at work, with their pace."""
    from mainspring.domain.errors import NotFound

    try:
        return maps_in_words(client.workflow_run(run_id), datetime.now(UTC))
    except NotFound:  # it has ended and was forgotten
        return ""


@noun.verb(
    "steps",
    "mainspring workflow steps 6f0a8b11 --status failed",
    "mainspring workflow steps 6f0a8b11 --name resize --members --limit 5",
)
@with_list_options
def steps(
    run: WorkflowRunArgument,
    name: Annotated[str | None, typer.Option("--name", help="Only this step.", show_default=False)] = None,
    members: Annotated[bool, typer.Option("--members", help="The members of the mapped step --name.")] = False,
    status: Annotated[
        str | None,
        typer.Option(
            "--status",
            help="waiting, running, success, failed, ...",
            autocompletion=completing.words("waiting", "running", "success", "failed", "skipped", "cancelled"),
            show_default=False,
        ),
    ] = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
    *,
    options: ListOptions,
) -> None:
    """List the steps of a workflow run, or the members of a mapped step."""

    def read(client: Client) -> Listing:
        page = call_for_run(
            client,
            run,
            lambda found: client.workflow_steps(
                found, status=status, name=name, members=members, limit=limit, cursor=cursor
            ),
        )
        return Listing(
            page,
            _STEPS_COLUMNS,
            lambda _times: [
                (
                    step.name,
                    "" if step.index is None else str(step.index),
                    step.status or "WAITING",
                    step.run_id or "",
                    str(step.attempt_number) if step.attempt_number else "",
                    "" if step.duration is None else span(step.duration),
                    error_line(step.error_message or step.reason or ""),
                )
                for step in page.steps
            ],
            "no steps",
            more_pages(page.next),
        )

    show_list(options, read)


@noun.verb("watch", "mainspring workflow watch 6f0a8b11", "mainspring workflow watch 6f0a8b11 --once")
def watch(
    server: Server,
    run: WorkflowRunArgument,
    once: Annotated[bool, typer.Option("--once", help="Print it once, as it is now.")] = False,
    interval: Annotated[str, typer.Option("--interval", metavar="D", help="How often it is refreshed.")] = "1s",
    as_json: JsonFlag = False,
) -> None:
    """Show a workflow run as a tree of its steps, live until it ends. Exit with 0 only on SUCCESS."""
    seconds = parse_interval(interval)
    with server.connect() as client:
        view = call_for_run(client, run, client.workflow_run)
        if not once:
            raise typer.Exit(watch_workflow_run(client, view.run_id, as_json=as_json, interval=seconds))
    if as_json:
        show_json(view)
    else:
        print_tree(view)


@noun.verb(
    "cancel", "mainspring workflow cancel 6f0a8b11", "mainspring workflow cancel 6f0a8b11 --reason 'wrong region'"
)
def cancel(
    server: Server,
    run: WorkflowRunArgument,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why, for the others.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Cancel a workflow run and all of its steps that have not ended. Steps that run are asked to stop."""
    with server.connect() as client:
        view = call_for_run(client, run, lambda found: client.cancel_workflow_run(found, reason=reason))
    if as_json:
        show_json(view)
    elif view.status == "CANCELLED":
        show_line(f"workflow run {view.run_id} is CANCELLED")
    else:
        show_line(f"workflow run {view.run_id} is {view.status}; it becomes CANCELLED when its last step has ended")


@noun.verb(
    "rerun",
    "mainspring workflow rerun 6f0a8b11 --watch",
    "mainspring workflow rerun 6f0a8b11 --from load --definition current",
)
def rerun(
    server: Server,
    run: WorkflowRunArgument,
    from_step: Annotated[
        str | None,
        typer.Option("--from", metavar="STEP", help="This step and all that follows it.", show_default=False),
    ] = None,
    definition: Annotated[
        str,
        typer.Option(
            "--definition",
            help="fired: the steps as they were. current: as the workflow is now.",
            autocompletion=completing.words("fired", "current"),
        ),
    ] = "fired",
    watch: Annotated[
        bool, typer.Option("--watch", "--wait", help="Show the run until it ends. Exit with 0 only on SUCCESS.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a part of an ended workflow run again, within that run: the steps that did not succeed and what follows
    them, or one step and what follows it."""
    with server.connect() as client:
        view = call_for_run(client, run, lambda found: client.rerun_workflow(found, from_step, definition=definition))
        if watch:
            raise typer.Exit(watch_workflow_run(client, view.run_id, as_json=as_json))
    if as_json:
        show_json(view)
    else:
        show_line(f"workflow run {view.run_id} is {view.status}, rerun {view.reruns}")


@noun.verb("pause", "mainspring workflow pause nightly")
def pause(
    server: Server,
    workflow: WorkflowArgument,
    as_json: JsonFlag = False,
) -> None:
    """Stop firing a workflow until `mainspring workflow resume`. Runs that have fired continue."""
    with server.connect() as client:
        show_workflow(call_for_job(client, workflow, client.pause_workflow), as_json=as_json)


@noun.verb("resume", "mainspring workflow resume nightly")
def resume(
    server: Server,
    workflow: WorkflowArgument,
    as_json: JsonFlag = False,
) -> None:
    """Let a paused workflow fire again, from its next time on."""
    with server.connect() as client:
        show_workflow(call_for_job(client, workflow, client.resume_workflow), as_json=as_json)


@noun.verb("delete", "mainspring workflow delete nightly")
def delete(
    server: Server,
    workflow: WorkflowArgument,
    as_json: JsonFlag = False,
) -> None:
    """Cancel a workflow, its live runs and all its future fires. Its history stays."""
    with server.connect() as client:
        show_workflow(call_for_job(client, workflow, client.delete_workflow), as_json=as_json)
