"""Lays out tables for a width in terminal cells. Pure: texts in, lines out.

Each row is one line. If a table is too wide, the columns of the highest rank are left out, then long texts are cut and
end with an ellipsis. Nothing is ever folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GAP = 2
WHOLE_ID = 36  # cells: an id is not cut to fewer while another column can give way
ELLIPSIS = "…"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    `rank`: columns of a higher rank are left out first, those of rank 0 never. `least`: the text may be cut to this
    many cells; None if it is never cut while another column can give way. `ids`: its UUIDs may be shown by their last
    characters.
    """

    title: str
    rank: int = 0
    least: int | None = None
    right: bool = False
    ids: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns are shown, by index, and how wide."""

    shown: list[int]
    widths: list[int]


def lay_out(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> Layout:
    """Choose columns and widths for texts of one line. `width` None: every column, as wide as its longest text."""
    natural = [max([cells(column.title), *(cells(row[index]) for row in rows)]) for index, column in enumerate(columns)]
    everything = list(range(len(columns)))
    if width is None:
        return Layout(everything, natural)
    shown = [index for index in everything if columns[index].rank == 0 or any(row[index] for row in rows)]
    least = [
        natural[index] if column.least is None else min(natural[index], column.least)
        for index, column in enumerate(columns)
    ]
    while len(shown) > 1 and _total([least[index] for index in shown]) > width:
        dropped = max(reversed(shown), key=lambda index: columns[index].rank)
        if columns[dropped].rank == 0:
            break
        shown.remove(dropped)
    return Layout(shown, _widths([least[index] for index in shown], [natural[index] for index in shown], width))


def table_lines(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None, ellipsis: str = ELLIPSIS
) -> list[list[str]]:
    """The lines of a table as padded cells, the titles first. The cells of a line are joined by GAP spaces."""
    layout = lay_out(columns, rows, width)
    titles = [column.title for column in columns]
    return [
        [
            _pad(row[index], columns[index], wide, ellipsis, last=place == len(layout.shown) - 1)
            for place, (index, wide) in enumerate(zip(layout.shown, layout.widths, strict=True))
        ]
        for row in (titles, *rows)
    ]


def cells(text: str) -> int:
    """How many cells of a terminal the text takes. Wide characters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int, ellipsis: str = ELLIPSIS) -> str:
    """The text in at most `width` cells. A text that is too long ends with the ellipsis."""
    if cells(text) <= width:
        return text
    if width <= cells(ellipsis):
        return ellipsis[:width]
    room = width - cells(ellipsis)
    end = min(len(text), room)
    while cells(text[:end]) > room:
        end -= 1
    while end < len(text) and cells(text[: end + 1]) <= room:  # characters without a width
        end += 1
    return text[:end].rstrip() + ellipsis


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` cells, broken between words. Only a word that is longer than a line is
    divided."""
    lines = [""]
    for word in _words(text, max(2, width)):
        if lines[-1] and cells(lines[-1]) + cells(word.rstrip(" ")) > width:
            lines[-1] = lines[-1].rstrip(" ")
            lines.append("")
        lines[-1] += word
    lines[-1] = lines[-1].rstrip(" ")
    return lines


def _words(text: str, width: int) -> list[str]:
    """The words with the spaces after them, in pieces of at most `width` cells."""
    pieces: list[str] = []
    for word in text.split(" "):
        rest = word
        while cells(rest) > width:
            end = min(len(rest), width)
            while end > 1 and cells(rest[:end]) > width:
                end -= 1
            pieces.append(rest[:end])
            rest = rest[end:]
        pieces.append(rest + " ")
    return pieces


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _widths(least: Sequence[int], natural: Sequence[int], width: int) -> list[int]:
    """Widths between `least` and `natural`. What is left of `width` goes to all columns in turn."""
    widths = list(least)
    spare = width - _total(widths)
    while spare < 0 and max(widths) > 1:  # only columns of rank 0 are left, and they are too wide
        widths[widths.index(max(widths))] -= 1
        spare += 1
    while spare > 0:
        short = [index for index, wide in enumerate(widths) if wide < natural[index]]
        if not short:
            break
        for index in short[:spare]:
            widths[index] += 1
        spare -= len(short[:spare])
    return widths


def _pad(text: str, column: Column, width: int, ellipsis: str, *, last: bool) -> str:
    shown = cut(text, width, ellipsis)
    spaces = " " * (width - cells(shown))
    if column.right:
        return spaces + shown
    return shown if last else shown + spaces
