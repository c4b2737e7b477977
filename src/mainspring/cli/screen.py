"""The output of the command line: data on stdout, everything else on stderr.

Whatever comes from a server passes through here, where its control characters become visible. Only the output and the
results of runs stay as they are if they go into a pipe or a file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from mainspring.cli.short_ids import ShortIds
from mainspring.cli.table import ELLIPSIS, GAP, Column, table_lines, wrapped
from mainspring.kernel.terminal import visible, visible_json, visible_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

TOO_LARGE = "(too large for a list)"
_NOT_A_TERMINAL = 10_000
_STYLES = {
    "SUCCESS": "green",
    "LIVE": "green",
    "COMPLETED": "green",
    "FAILED": "bold red",
    "LOST": "bold red",
    "CANCELLED": "magenta",
    "SKIPPED": "dim",
    "STOPPED": "dim",
    "RUNNING": "cyan",
    "QUEUED": "yellow",
    "PAUSED": "yellow",
    "DRAINING": "yellow",
}


def has_width() -> bool:
    """Whether stdout has a width: on a terminal, or if COLUMNS says so. Otherwise nothing is shortened or left out: a
    part of an id could not be found with grep."""
    return sys.stdout.isatty() or "COLUMNS" in os.environ


def stdout() -> Console:
    from rich.console import Console

    width = None if has_width() else _NOT_A_TERMINAL
    return Console(width=width, markup=False, highlight=False, emoji=False, soft_wrap=False)


def stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True, markup=False, highlight=False, emoji=False, soft_wrap=True)


def show_json(value: Any) -> None:
    """Print the value as JSON, indented on a terminal and on one line in a pipe."""
    import msgspec

    text = msgspec.json.encode(value)
    if sys.stdout.isatty():
        sys.stdout.write(visible_json(msgspec.json.format(text, indent=2).decode()) + "\n")
    else:
        sys.stdout.write(text.decode() + "\n")


def show_line(text: str) -> None:
    """Print one line of data on stdout. It is never folded."""
    sys.stdout.write(visible_line(text) + "\n")


def show_output(text: str, *, raw: bool = False) -> None:
    """Print what a run printed or returned. `raw` lets its control characters reach the terminal."""
    sys.stdout.write(visible(text) if sys.stdout.isatty() and not raw else text)
    sys.stdout.flush()


def shares_a_screen() -> bool:
    """Whether stdout and stderr go to the same place, so that one continues the line of the other."""
    try:
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except (OSError, ValueError):
        return False


def say(text: str) -> None:
    """Print a message on stderr."""
    sys.stderr.write(visible(text) + "\n")


def show_rows(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], *, nothing: str, full_ids: bool = False
) -> None:
    """Print a table. `nothing` is printed on stderr if there are no rows."""
    console = stdout()
    width = console.width if has_width() else None
    lines = table_texts(columns, rows, width, full_ids=full_ids)
    if len(lines) == 1:
        say(nothing)
        return
    for line in lines:
        console.print(line, soft_wrap=True)


def table_texts(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], width: int | None, *, full_ids: bool = False
) -> list[Text]:
    """The lines of a table with colours, the titles first. `width` None: nothing is shortened or left out."""
    from rich.text import Text

    found = [[_one_line(text) for text in row] for row in rows]
    if width is not None and not full_ids:
        found = _with_short_ids(columns, found)
    gap = " " * GAP
    lines = []
    for number, cells_of_line in enumerate(table_lines(columns, found, width, _ellipsis())):
        line = Text(style="bold" if number == 0 else "")
        for index, padded in enumerate(cells_of_line):
            line.append(gap * bool(index))
            line.append(padded, style=_STYLES.get(padded.strip()) if number else None)
        line.rstrip()
        lines.append(line)
    return lines


def show_fields(fields: Iterable[tuple[str, str | None]]) -> None:
    """Print one name and value per line. Values that are None are left out."""
    console = stdout()
    kept = [(name, value) for name, value in fields if value is not None]
    names = max((len(name) for name, _ in kept), default=0)
    room = max(20, console.width - names - GAP)
    for name, value in kept:
        console.print(_label(name.ljust(names)), _value(value, names + GAP, room), sep=" " * GAP, soft_wrap=True)


def cell(text: str) -> Text:
    """A text of one line."""
    from rich.text import Text

    return Text(visible_line(text), style=_STYLES.get(text, ""))


def _value(text: str, indentation: int, room: int) -> Text:
    """The value of a field. Further lines are indented, so that none looks like another field."""
    from rich.text import Text

    lines = [_encodable(line) for line in visible(text).split("\n")]
    if has_width():
        lines = [part for line in lines for part in wrapped(line.expandtabs(8), room)]
    return Text(("\n" + " " * indentation).join(lines), style=_STYLES.get(text, ""))


def _label(text: str) -> Text:
    from rich.text import Text

    return Text(text, style="dim")


def _with_short_ids(columns: Sequence[Column], rows: list[list[str]]) -> list[list[str]]:
    places = [index for index, column in enumerate(columns) if column.ids]
    ids = ShortIds(row[index] for row in rows for index in places)
    return [[ids.shorten(text) if index in places else text for index, text in enumerate(row)] for row in rows]


def _one_line(text: str) -> str:
    return _encodable(visible_line(text))


def _encodable(text: str) -> str:
    """The text as a terminal without UTF-8 shows it. It is replaced before it is measured."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _ellipsis() -> str:
    return ELLIPSIS if _encodable(ELLIPSIS) == ELLIPSIS else "~"
