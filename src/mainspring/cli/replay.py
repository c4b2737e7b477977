"""`mainspring replay`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainspring.cli.choosing import (
    AllFlag,
    ErrorOption,
    JobOption,
    QueueOption,
    RunsArgument,
    SinceOption,
    TaskOption,
    UntilOption,
    check_choice,
    filters_of,
)
from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.find_id import dead_letter_ids, dead_letters_job
from mainspring.cli.job_options import payload_of
from mainspring.cli.screen import say, show_json, show_line

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.runs import Replayed

EXAMPLES = (
    "mainspring replay 6f0a8b11",
    "mainspring replay --task invoice.send --error timeout",
    'mainspring replay 6f0a8b11 --payload \'{"region": "eu"}\'',
)


def command(
    run_ids: RunsArgument = None,
    job: JobOption = None,
    task: TaskOption = None,
    queue: QueueOption = None,
    error: ErrorOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    everything: AllFlag = False,
    payload: Annotated[
        str | None,
        typer.Option(
            "--payload", metavar="JSON", help="Use this payload instead of the stored one.", show_default=False
        ),
    ] = None,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Run dead letters, or ended runs by their ids, again as new runs with the same scheduled time. Prints the ids of
    the new runs."""
    filters = filters_of(job, task, queue, error, since, until)
    check_choice(run_ids, filters, everything=everything)
    changed = payload_of(payload, [])
    with connect(url, token_file, data) as client:
        filters["job"] = dead_letters_job(client, job)
        done = (
            _by_id(client, run_ids, changed)
            if run_ids
            else client.replay_dead_letters(changed, all=everything, **filters)
        )
    if as_json:
        show_json(done)
        return
    for run_id in done.run_ids:
        show_line(run_id)
    say(f"{done.replayed} replayed" + ("; there are more, repeat the command" if done.more else ""))
    for reason, count in done.left.items():
        say(f"{count} not replayed: {reason}")


def _by_id(client: Client, run_ids: list[str], payload: dict[str, Any] | None) -> Replayed:
    from mainspring.domain.errors import MainspringError
    from mainspring.wire.runs import Replayed

    new: list[str] = []
    try:
        for run_id in dead_letter_ids(client, run_ids, or_runs=True):
            new.append(client.retry_run(run_id, payload).run_id)  # noqa: PERF401 - the list survives an error
    except MainspringError:
        if new:  # the error concerns the next id; these runs exist already
            say(f"{len(new)} replayed before the error: {', '.join(new)}")
        raise
    return Replayed(len(new), new)
