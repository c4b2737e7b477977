"""`mainspring discard`"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from mainspring.cli.screen import show_json, show_line

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.runs import Discarded

EXAMPLES = (
    "mainspring discard 6f0a8b11 2f1f0a8b",
    "mainspring discard --job daily_report --until 2026-11-01T00:00:00Z",
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
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Discard dead letters. Their runs stay in the history. `mainspring retry` can still run them again."""
    filters = filters_of(job, task, queue, error, since, until)
    check_choice(run_ids, filters, everything=everything)
    with connect(url, token_file, data) as client:
        filters["job"] = dead_letters_job(client, job)
        done = _by_id(client, run_ids) if run_ids else client.discard_dead_letters(all=everything, **filters)
    if as_json:
        show_json(done)
    else:
        show_line(f"{done.discarded} discarded" + ("; there are more, repeat the command" if done.more else ""))


def _by_id(client: Client, run_ids: list[str]) -> Discarded:
    from mainspring.wire.runs import Discarded

    return Discarded(sum(client.discard(run_id).discarded for run_id in dead_letter_ids(client, run_ids)))
