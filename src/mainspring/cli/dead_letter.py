"""`mainspring dead-letter`"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.listing import UtcFlag
from mainspring.cli.screen import show_fields, show_json
from mainspring.cli.which_run import RunOrJob, call_for_run
from mainspring.cli.wording import Times

if TYPE_CHECKING:
    from mainspring.wire.runs import AttemptView, DeadLetterView

EXAMPLES = ("mainspring dead-letter 6f0a8b11",)


def command(
    run_or_job: RunOrJob,
    utc: UtcFlag = False,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Show a dead letter: its payload, and the error of each attempt."""
    with connect(url, token_file, data) as client:
        letter = call_for_run(client, run_or_job, client.dead_letter, kind="dead_letter")
    if as_json:
        show_json(letter)
    else:
        show_fields(_fields(letter, Times(datetime.now(UTC), utc)))


def _fields(letter: DeadLetterView, times: Times) -> list[tuple[str, str | None]]:
    import msgspec

    fields: list[tuple[str, str | None]] = [
        ("run", letter.run_id),
        ("job", letter.job_id),
        ("name", letter.name),
        ("task", f"{letter.task}, queue {letter.queue}"),
        ("due", times.full(letter.scheduled_for)),
        ("died", times.full(letter.died_at)),
        ("reason", letter.reason),
        ("replay of", letter.replay_of),
        ("payload", msgspec.json.encode(letter.payload).decode() if letter.payload else None),
    ]
    if letter.tries:
        return fields + [(f"try {one.attempt}", _words(one, times)) for one in letter.tries]
    return [*fields, ("last error", letter.error_message)]


def _words(one: AttemptView, times: Times) -> str:
    where = one.worker_name or one.worker_id or "no worker"
    return f"{one.outcome} {times.full(one.ended_at)} on {where}" + (f"\n{one.error.rstrip()}" if one.error else "")
