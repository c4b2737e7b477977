"""The output of the command line: data on stdout, everything else on stderr.

Whatever comes from a server passes through here, where its control characters become visible. Only the output and the
results of runs stay as they are if they go into a pipe or a file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mainspring.kernel.terminal import visible, visible_json, visible_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

TOO_LARGE = "(too large for a list)"
NARROW = 80
_NOT_A_TERMINAL = 10_000  # a pipe has no width; a folded id could not be found with grep
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


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `whole` columns have a known width and fold last. Text is folded, never cut."""

    title: str
    whole: bool = False
    right: bool = False


def stdout() -> Console:
    from rich.console import Console

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _NOT_A_TERMINAL
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


def say(text: str) -> None:
    """Print a message on stderr."""
    sys.stderr.write(visible(text) + "\n")


def show_rows(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, nothing: str) -> None:
    """Print a table, or one block per row on a narrow terminal. `nothing` is printed if there are no rows."""
    found = [[cell(text) for text in row] for row in rows]
    if not found:
        say(nothing)
        return
    console = stdout()
    if console.width < NARROW:
        _show_blocks(console, [column.title for column in columns], found)
    else:
        _show_table(console, columns, found)


def show_fields(fields: Iterable[tuple[str, str | None]]) -> None:
    """Print one name and value per line. Values that are None are left out."""
    console = stdout()
    kept = [(name, value) for name, value in fields if value is not None]
    width = max((len(name) for name, _ in kept), default=0)
    for name, value in kept:
        console.print(_label(name.ljust(width)), _value(value, width + 2), sep="  ", soft_wrap=True)


def cell(text: str) -> Text:
    """A text of one line."""
    from rich.text import Text

    return Text(visible_line(text), style=_STYLES.get(text, ""))


def _value(text: str, indentation: int) -> Text:
    """The value of a field. Further lines are indented, so that none looks like another field."""
    from rich.text import Text

    return Text(visible(text).replace("\n", "\n" + " " * indentation), style=_STYLES.get(text, ""))


def _label(text: str) -> Text:
    from rich.text import Text

    return Text(text, style="dim")


def _show_table(console: Console, columns: Sequence[Column], rows: list[list[Text]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        justify: Any = "right" if column.right else "left"
        table.add_column(column.title, no_wrap=column.whole or column.right, overflow="fold", justify=justify)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _show_blocks(console: Console, titles: list[str], rows: list[list[Text]]) -> None:
    width = max(len(title) for title in titles)
    for index, row in enumerate(rows):
        if index:
            console.print()
        for title, value in zip(titles, row, strict=True):
            if not value:
                continue
            console.print(_label(title.lower().ljust(width)), value, sep="  ", soft_wrap=True)
