"""Parts of the log of a run: its last lines, and lines that contain a text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.logs import LogMatch

_MOST_LINES = 10_000
_MOST_MATCHES = 1000


class LastLines(NamedTuple):
    """The last lines of an attempt. mark: where its next output begins; None if no attempt has begun. truncated: what
    it printed after them was not kept."""

    attempt: int
    text: str
    mark: str | None
    truncated: bool


def last_lines(client: Client, run_id: str, attempt: int | None, count: int) -> LastLines:
    """The last `count` lines, read in ranges from the end."""
    found = client.log_lines(run_id, attempt, lines=min(count, _MOST_LINES))
    mark = f"{found.attempt}:{found.end}" if found.attempt else None
    number, truncated, parts = found.attempt, found.truncated, [found.text]
    left = count - _lines(found.text)
    while left > 0 and found.start > 0:
        found = client.log_lines(run_id, number, before=found.start, lines=min(left, _MOST_LINES))
        parts.append(found.text)
        left -= _lines(found.text)
    return LastLines(number, "".join(reversed(parts)), mark, truncated)


def matching_lines(client: Client, run_id: str, attempt: int | None, text: str) -> Iterator[LogMatch]:
    """The lines that contain the text, as they are found."""
    found = client.search_log(run_id, text, attempt, limit=_MOST_MATCHES)
    yield from found.matches
    number = found.attempt or attempt
    while found.more:
        found = client.search_log(run_id, text, number, start=found.searched_to, limit=_MOST_MATCHES)
        yield from found.matches


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n") and text != "")
