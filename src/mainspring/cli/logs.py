"""`mainspring logs`"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.connect import DataOption, TokenFileOption, UrlOption, connect
from mainspring.cli.exit_codes import FAILURE, INTERRUPTED
from mainspring.cli.screen import say
from mainspring.cli.which_run import RunOrJob, run_of

if TYPE_CHECKING:
    from mainspring.sdk.client import Client

EXAMPLES = (
    "mainspring logs 0197a6c0-5d1e-7c3a-9d50-2f1f6f0a8b11 -f",
    "mainspring logs daily_report --attempt 1",
)
_PATIENCE = 60.0  # a server that restarts while we follow is no reason to stop following


def command(
    run_or_job: RunOrJob,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow it to its end, through retries; exit 0 on SUCCESS only.")
    ] = False,
    attempt: Annotated[
        int | None, typer.Option("--attempt", metavar="N", min=1, help="That attempt only.", show_default="the newest")
    ] = None,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Show what a run printed: stdout, stderr and what its task logged, as it came."""
    with connect(url, token_file, data) as client:
        run_id = run_of(client, run_or_job)
        if follow:
            raise typer.Exit(_follow(client, run_id, attempt))
        _show(client.logs(run_id, attempt))


def _follow(client: Client, run_id: str, attempt: int | None) -> int:
    client.patience = _PATIENCE
    try:
        for event in client.log_events(run_id, attempt):
            match event.kind:
                case "output" | "truncated":
                    _show(event.text)
                case "attempt":
                    say(f"--- attempt {event.attempt} ---")
                case "end":
                    if event.status != "SUCCESS":
                        say(f"{event.status} (run {run_id})")
                    return 0 if event.status == "SUCCESS" else FAILURE
    except KeyboardInterrupt:
        say(f"\nno longer following; the run goes on. To stop it: mainspring cancel {run_id}")
        return INTERRUPTED
    return FAILURE


def _show(text: str) -> None:
    """As it is: whoever reads it into a file wants what was printed."""
    sys.stdout.write(text)
    sys.stdout.flush()
