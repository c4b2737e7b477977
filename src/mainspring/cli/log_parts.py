"""Parts of the log of a run: its last lines, and lines that contain a text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from mainspring.cli.exit_codes import FAILURE
from mainspring.cli.screen import say

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.logs import LogMatch

_MOST_LINES = 10_000
_MOST_MATCHES = 1000
_LONGEST_MARK = 200


class MissingOutput:
    """Output that the log store does not have any more. A line of the log says how much."""

    def __init__(self) -> None:
        self._line = ""  # the end of what was seen, which the next part may continue
        self.bytes = 0

    def see(self, text: str) -> None:
        """Look at the next part of the log."""
        from mainspring.wire.logs import MISSING_WORDS

        if MISSING_WORDS not in (seen := self._line + text):
            self._line = seen.rpartition("\n")[2][-_LONGEST_MARK:]
            return
        ended, _, self._line = seen.rpartition("\n")
        for number in re.findall(rf"^\[mainspring: ([0-9]+) {MISSING_WORDS}\]$", ended, re.MULTILINE):
            self.bytes += int(number)

    def exit_code(self, code: int = 0) -> int:
        """Say what is missing. It is a failure: who saves the output must not take it for all of it."""
        if not self.bytes:
            return code
        say(f"error: {self.bytes} bytes of the output are missing from the log store")
        say("hint: does a server keep logs in a folder of its own, or were files removed? See: mainspring status")
        return code or FAILURE


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
