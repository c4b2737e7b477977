"""Shows something again and again until Ctrl-C: in place on a terminal, one after the other in a pipe.

A server that goes away is waited for. What it said last stays on the screen, with a line that says since when.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from mainspring.cli.exit_codes import INTERRUPTED
from mainspring.cli.screen import cell, say, stdout
from mainspring.cli.table import cut

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

T = TypeVar("T")
pause = time.sleep
SHORTEST = 0.5  # seconds; more often would be load without use


def parse_interval(text: str) -> float:
    """The seconds of --interval."""
    from mainspring.domain.durations import parse_duration
    from mainspring.domain.errors import InvalidInput

    seconds = parse_duration(text, "interval")
    if seconds < SHORTEST:
        raise InvalidInput(f"{text!r} is too short", field="interval", expected="0.5s or more")
    return seconds


def watch(
    title: str,
    read: Callable[[], T],
    draw: Callable[[T, int], Sequence[Text]],
    interval: float,
    over: Callable[[T], bool] | None = None,
) -> int:
    """Call `read` every `interval` seconds and show what `draw` makes of it for the width of the terminal.

    The first answer must come: after that, a server that does not answer is asked again. Returns the exit code after
    Ctrl-C, or 0 if it is `over`. The last state stays on the terminal.
    """
    console = stdout()
    first = last = read()
    code = 0
    try:
        with _ended_by_sigterm(), _screen(console) as show:
            for words, last in _answers(read, first, interval):
                show(_frame(console, f"{title}, every {interval:g} s", words, draw(last, console.width)))
                if words is None and over is not None and over(last):
                    break
    except KeyboardInterrupt:
        code = INTERRUPTED
    for line in draw(last, console.width):
        console.print(line, soft_wrap=True)
    return code


def repeat(read: Callable[[], T], show: Callable[[T], None], interval: float) -> int:
    """Watch where output cannot be replaced in place: `show` each answer after the other."""
    first = read()
    failed = None
    try:
        for words, answer in _answers(read, first, interval):
            if words is None:
                show(answer)
            elif failed is None:
                say(words)
            failed = words
    except KeyboardInterrupt:
        pass
    return INTERRUPTED


def _answers(read: Callable[[], T], answer: T, interval: float) -> Iterator[tuple[str | None, T]]:
    """Each answer, and None. While there is none: the last one, and what is wrong."""
    from mainspring.domain.errors import Unavailable

    since: str | None = None
    yield None, answer
    while True:
        pause(interval)
        try:
            answer = read()
        except Unavailable as error:
            since = since or _clock()
            yield f"no answer since {since}, trying again: {error.detail}", answer
        else:
            since = None
            yield None, answer


def _frame(console: Console, title: str, words: str | None, lines: Sequence[Text]) -> Sequence[Text]:
    """A line about the list, and as much of it as the terminal has room for."""
    from rich.text import Text

    heading = words or f"{title}. {_clock()}. Ctrl-C ends."
    head = cell(cut(heading, console.width))
    head.style = "bold red" if words else "dim"
    room = max(1, console.height - 2)
    shown = list(lines[:room])
    if len(lines) > room:
        shown[-1] = Text(f"and {len(lines) - room + 1} more", style="dim")
    return [head, Text(), *shown]


@contextmanager
def _screen(console: Console) -> Iterator[Callable[[Sequence[Text]], None]]:
    """Shows one frame after the other on the terminal's second screen."""
    from rich.text import Text

    with console.screen(hide_cursor=True) as screen:
        screen.screen.renderable = Text()
        yield lambda lines: screen.update(Text("\n").join(lines))


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Lets SIGTERM end the program as Ctrl-C does, so that it leaves the second screen."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _clock() -> str:
    return datetime.now().astimezone().strftime("%H:%M:%S")
