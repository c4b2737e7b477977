"""`mainspring act`"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mainspring.cli import completing
from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.operation_output import TARGETS, filter_of, in_words, watch_operation
from mainspring.cli.screen import say, show_json, show_line

EXAMPLES = (
    "mainspring act pause jobs queue=mails label=team:bi",
    "mainspring act retry runs status=failed task=mail.send --yes",
    "mainspring act discard dead-letters error=timeout --count",
)


def command(
    server: Server,
    verb: Annotated[
        str,
        typer.Argument(
            metavar="VERB",
            help="Of jobs: pause, resume, cancel, run_now. Of runs: cancel, retry. Of dead letters: replay, discard.",
            autocompletion=completing.words("pause", "resume", "cancel", "run_now", "retry", "replay", "discard"),
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(metavar="WHAT", help="jobs, runs or dead-letters.", autocompletion=completing.words(*TARGETS)),
    ],
    filters: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=VALUE]...", help="Only those that match: the parameters of the list, such as queue=mails."
        ),
    ] = None,
    only_count: Annotated[bool, typer.Option("--count", help="Only say how many match.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until all of them are dealt with.")] = True,
    as_json: JsonFlag = False,
) -> None:
    """One verb on all jobs, runs or dead letters that match. Says how many, asks, and shows what became of it."""
    from mainspring.domain.errors import InvalidInput

    if target not in TARGETS:
        raise InvalidInput(f"{target!r} is unknown", expected="one of " + ", ".join(TARGETS))
    chosen = filter_of(filters or [])
    with server.connect() as client:
        counted = client.count_matching(target, verb, chosen)
        if only_count:
            if as_json:
                show_json(counted)
            else:
                show_line(str(counted.count) if counted.exact else f"about {counted.count}")
            return
        about = "" if counted.exact else "about "
        if not yes and not _agreed(f"{verb} {about}{counted.count} {target} ({in_words(chosen)})?"):
            say("nothing was done")
            raise typer.Exit(1)
        view = client.act_on_many(target, verb, filter=chosen, expected=counted.count)
        if wait:
            raise typer.Exit(watch_operation(client, view, as_json=as_json))
    if as_json:
        show_json(view)
    else:
        show_line(view.id)


def _agreed(question: str) -> bool:
    from mainspring.domain.errors import InvalidInput

    if not sys.stdin.isatty():
        raise InvalidInput("nobody can be asked", hint="give --yes to act without a question")
    return typer.confirm(question, err=True)
