"""`mainspring run-now`"""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.find_id import JOB_HELP, call_for_job
from mainspring.cli.job_options import payload_of
from mainspring.cli.screen import say, show_json, show_line
from mainspring.cli.waiting import longest_wait, wait_and_show

EXAMPLES = (
    "mainspring run-now daily_report --wait",
    "mainspring run-now sync --payload '{\"day\": 1}' --idempotency-key day-1",
)


def command(
    job_id: Annotated[str, typer.Argument(metavar="JOB", help=JOB_HELP, autocompletion=completing.jobs)],
    payload: Annotated[
        str | None,
        typer.Option("--payload", metavar="JSON", help="Use this payload instead of the job's.", show_default=False),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            "--idempotency-key", metavar="K", help="A repeated command with this key starts no second run of the job."
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the run ends. Exit with 0 only on SUCCESS.")] = False,
    timeout_wait: Annotated[
        str | None, typer.Option("--timeout-wait", metavar="D", help="Longest time to wait, such as 30s.")
    ] = None,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Run a job once now, in addition to its schedule. Also works for a paused job and for a one-time job that has
    fired, which is repeated. Prints the run's id."""
    longest = longest_wait(timeout_wait, wait=wait)
    with connect(url, token_file, data) as client:
        changed = payload_of(payload, [])
        accepted = call_for_job(
            client, job_id, lambda found: client.run_now(found, changed, idempotency_key=idempotency_key)
        )
        if wait:
            if not as_json:
                say(f"run {accepted.run_id}")
            handle = client.handle(accepted.job_id, accepted.run_id)
            raise typer.Exit(wait_and_show(client, handle, timeout=longest, as_json=as_json))
    if as_json:
        show_json(accepted)
    else:
        show_line(accepted.run_id)
        if accepted.status == "SKIPPED":
            say(f"SKIPPED: {accepted.reason}")
        elif accepted.does_not_wait_for:
            say(f"it does not wait for {', '.join(accepted.does_not_wait_for)}, because it was started by hand")
