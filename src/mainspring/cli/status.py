"""`mainspring status`"""

from __future__ import annotations

import typer

from mainspring.cli import figures
from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.exit_codes import FAILURE
from mainspring.cli.screen import say, show_fields, show_json

EXAMPLES = ("mainspring status", "mainspring status --json | jq .problems")


def command(server: Server, as_json: JsonFlag = False) -> None:
    """Show on one screen whether all is well: schedulers, workers, queues and failures.

    Exit 0 only if it is. Warnings are no problem."""
    with server.connect() as client:
        seen = client.overview()
        address = client.connection.url
    if as_json:
        show_json(seen)
    else:
        show_fields(
            [
                ("status", seen.status),
                ("server", f"{address}, version {seen.version}"),
                ("scheduling", figures.scheduling(seen)),
                ("workers", figures.workers(seen)),
                ("runs", figures.runs(seen)),
                ("last minute", figures.last_minute(seen)),
                ("dead letters", figures.dead_letters(seen)),
                *(("paused", words) for words in seen.paused),
            ]
        )
        for problem in seen.problems:
            say(f"problem: {problem}")
        for warning in seen.warnings:
            say(f"warning: {warning}")
    raise typer.Exit(0 if seen.status == "ok" else FAILURE)
