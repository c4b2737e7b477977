"""Says on a terminal which runs start and how they end, in one line each.

A worker can end ten thousand runs in a second. Beyond a few dozen lines in a second the rest is only counted.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from mainspring.domain.durations import format_duration
from mainspring.domain.intake.kind_checks import stored_call
from mainspring.kernel.clock import SYSTEM_CLOCK, LoopClock
from mainspring.kernel.logs import Logger, get_logger
from mainspring.kernel.terminal import visible_line
from mainspring.kernel.texts import error_line

if TYPE_CHECKING:
    from mainspring.worker.execution.attempt import Attempt, AttemptEnding

LINES_PER_SECOND = 40
_WINDOW = 1.0
_SOON = 0.25
_WHAT_WIDTH = 28
_SHORT_ID = 6
_LONGEST_ERROR = 160
_STARTED = "started"
_SNOOZED = "snoozed"
_CALLED = "called"
_WORDS = {"SUCCESS": "succeeded", "FAILED": "failed", "CANCELLED": "cancelled", "RETURNED": "handed back"}
_WORD_WIDTH = max(map(len, _WORDS.values()))

log = get_logger("runs")


class RunLines:
    def __init__(self, clock: LoopClock = SYSTEM_CLOCK, log: Logger = log) -> None:
        self._clock = clock
        self._log = log
        self._window_ends = 0.0
        self._lines = 0
        self._unsaid: Counter[str] = Counter()

    def started(self, attempt: Attempt) -> None:
        """The line appears if the run has not ended soon after. Otherwise its end says enough."""
        self._clock.call_later(_SOON, self._say_started, attempt)

    def _say_started(self, attempt: Attempt) -> None:
        if not attempt.reported and self._has_room(_STARTED):
            again = "" if attempt.order.attempt <= 1 else f"  attempt {attempt.order.attempt}"
            self._log.info(_line(_STARTED, attempt) + again)

    def ended(self, attempt: Attempt, ending: AttemptEnding) -> None:
        word = _SNOOZED if ending.snooze is not None else _WORDS.get(ending.status, ending.status.lower())
        if ending.callback:
            word = _CALLED
        if not self._has_room(word):
            return
        took = f"  {format_duration(round(max(0.0, self._clock.monotonic() - attempt.started), 3))}"
        line = _line(word, attempt) + (took if attempt.started else "")
        if ending.snooze is not None:
            self._log.info(f"{line}  for {format_duration(ending.snooze)}")
        elif ending.status == "FAILED" and not ending.callback:
            self._log.warning(f"{line}  {short_error(ending.error or '')}")
        else:
            self._log.info(line)

    def _has_room(self, word: str) -> bool:
        """Whether there is room for another line in this second. What has none is counted."""
        now = self._clock.monotonic()
        if now >= self._window_ends:
            self._window_ends, self._lines = now + _WINDOW, 0
        if self._lines < LINES_PER_SECOND:
            self._lines += 1
            return True
        if not self._unsaid:
            self._clock.call_later(self._window_ends - now, self._say_count)
        self._unsaid[word] += 1
        return False

    def _say_count(self) -> None:
        counted = ", ".join(f"{number:,} {word}" for word, number in self._unsaid.items())
        say = self._log.warning if _WORDS["FAILED"] in self._unsaid else self._log.info
        self._unsaid = Counter()
        say(f"\u2026 and {counted}")


def short_error(error: str) -> str:
    """What fits into a line of an error."""
    return _cut(visible_line(error_line(error) or "no error was given"), _LONGEST_ERROR)


def _line(word: str, attempt: Attempt) -> str:
    order = attempt.order
    what = order.name or (order.job_id if order.job_id != str(order.run_id) else None) or _call(attempt)
    return (
        f"{word:{_WORD_WIDTH}}  {_cut(visible_line(what), _WHAT_WIDTH):{_WHAT_WIDTH}}  {str(order.run_id)[-_SHORT_ID:]}"
    )


def _call(attempt: Attempt) -> str:
    """What the run calls: its command, its address or its task."""
    order = attempt.order
    found = stored_call(order.task, order.command, order.setup)
    if found is None or found[1] is None:
        return order.task
    kind, call = found
    words: str = kind.part("call").in_words(call)
    return words


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "\u2026"
