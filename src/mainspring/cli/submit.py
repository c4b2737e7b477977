"""The command `mainspring submit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainspring.cli import completing
from mainspring.cli.added_options import with_options
from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.field_options import field_values, submit_options
from mainspring.cli.screen import say, show_json, show_line
from mainspring.cli.task_options import task_options, task_values
from mainspring.cli.wait_output import longest_wait, wait_and_show

if TYPE_CHECKING:
    from mainspring.sdk.client.handle import Handle

EXAMPLES = (
    "mainspring submit hello name=you --wait",
    "mainspring submit --command 'date' --cron '* * * * *' --name clock",
    "mainspring submit --http https://example.com/hook --body '{\"id\": 7}' --wait",
    'mainspring submit report.generate --payload \'{"region": "eu"}\' --in 5m',
)
_MERGED = {
    "kept": "it stays as it is",
    "replaced": "it has the new payload",
    "later": "it waits until the new time",
}


@with_options([*task_options(), *submit_options()], after="params")
def command(
    server: Server,
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK",
            help="Name of the task; not with --command or --http.",
            autocompletion=completing.tasks,
            show_default=False,
        ),
    ] = None,
    params: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="A parameter of the task. Valid JSON (3, true, [1]) is sent as JSON, anything else as text.",
            show_default=False,
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the run ends; exit 0 only if it succeeds.")] = False,
    timeout_wait: Annotated[
        str | None, typer.Option("--timeout-wait", metavar="D", help="Longest time to wait: 30s.")
    ] = None,
    as_json: JsonFlag = False,
    **options: Any,
) -> None:
    """Submit a job that runs a task, a command or an HTTP call, now or on a schedule. Prints the job's id."""
    fields = {"task": task, **task_values(options, params or []), **field_values(options)}
    longest = longest_wait(timeout_wait, wait=wait)
    with server.connect() as client:
        handle = client.submit(**fields)
        if wait:
            if not as_json:
                say(f"job {handle.job_id}{_merged(handle)}")
            raise typer.Exit(wait_and_show(client, handle, timeout=longest, as_json=as_json))
    if as_json:
        show_json({"job_id": handle.job_id} | ({} if handle.unique is None else {"unique": handle.unique}))
    else:
        show_line(handle.job_id)
        if handle.unique is not None:
            say(f"no new job: {handle.job_id} has the unique key{_merged(handle)}")


def _merged(handle: Handle[Any]) -> str:
    """What became of a submission with the unique key of another job."""
    return "" if handle.unique is None else f" ({_MERGED.get(handle.unique, handle.unique)})"
