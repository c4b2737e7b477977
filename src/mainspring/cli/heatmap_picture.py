"""Pictures of fires: rows of cells, each as high as its count. Pure: counts in, lines out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

from mainspring.cli.screen import can_show

if TYPE_CHECKING:
    from rich.text import Text

_BLOCKS, _NONE = "▁▂▃▄▅▆▇█", "·"
_ASCII_BLOCKS, _ASCII_NONE = ":-=+*#%@", "."
_STYLES = ("green", "green", "green", "yellow", "yellow", "yellow", "red", "bold red")
_DAY_LABEL = 7
_HOURS = 24

Row = tuple[str, Sequence[int | None]]


def picture(rows: Iterable[Row]) -> list[Text]:
    """One line for each row: its label, and a block for each count. None: a cell outside of the range."""
    from rich.text import Text

    found = list(rows)
    most = max((count for _, counts in found for count in counts if count), default=0)
    blocks, none = (_BLOCKS, _NONE) if can_show(_BLOCKS + _NONE) else (_ASCII_BLOCKS, _ASCII_NONE)
    lines = []
    for label, counts in found:
        line = Text(label, style="")
        for count in counts:
            if count is None:
                line.append(" ")
            elif not count:
                line.append(none, style="dim")
            else:
                level = _level(count, most)
                line.append(blocks[level], style=_STYLES[level])
        line.rstrip()
        lines.append(line)
    return lines


def _level(count: int, most: int) -> int:
    """0 for a few, 7 for the most."""
    return (count * len(_BLOCKS) - 1) // most


def days(counts: Mapping[datetime, int], start: datetime, end: datetime, width: int) -> list[Text]:
    """A row for each day of [start, end), both wall times, with the hours of the day. `counts`: by the wall time of a
    quarter of an hour or an hour; the width decides how many quarters are one cell."""
    from rich.text import Text

    fine = {moment.minute for moment in counts} - {0}
    per_hour = next((n for n in (4, 2) if fine and _DAY_LABEL + n * _HOURS < width), 1)
    cell = timedelta(minutes=60 // per_hour)
    binned: dict[datetime, int] = {}
    for moment, count in counts.items():
        place = moment - timedelta(minutes=moment.minute % (60 // per_hour))
        binned[place] = binned.get(place, 0) + count
    rows: list[Row] = []
    day = start.date()
    while datetime.combine(day, datetime.min.time()) < end:
        midnight = datetime.combine(day, datetime.min.time())
        places = [midnight + cell * number for number in range(_HOURS * per_hour)]
        inside = [place if start < place + cell and place < end else None for place in places]
        rows.append((_day_label(day), [None if place is None else binned.get(place, 0) for place in inside]))
        day += timedelta(days=1)
    return [Text(_ruler(per_hour), style="dim"), *picture(rows)]


def hours(counts: Mapping[datetime, int], width: int) -> list[Text]:
    """A row for each hour of a day, with a block for every five minutes and the number of fires."""
    from rich.text import Text

    places = sorted(counts)
    rows: list[tuple[str, list[int | None], int]] = []
    for begin in sorted({place.replace(minute=0) for place in places}):
        cells = [counts.get(begin + timedelta(minutes=5 * number)) for number in range(12)]
        label = f"{begin:%a %d %H:00}" if not rows or begin.hour == 0 else f"{begin:%H:00}".rjust(12)
        rows.append((f"{label}  ", cells, sum(cell or 0 for cell in cells)))
    lines = picture((label, cells) for label, cells, _ in rows)
    for line, (_, _, total) in zip(lines, rows, strict=True):
        if total:
            line.pad_right(max(0, 28 - line.cell_len))
            line.append(f"{total:>{min(12, max(1, width - 28))},}")
    return [Text(" " * 14 + ":00   :30", style="dim"), *lines]


def weeks(counts: Sequence[tuple[date, int]]) -> list[Text]:
    """One row with a block for each week, and the months above it."""
    from rich.text import Text

    months = ""
    for number, (monday, _) in enumerate(counts):
        if (not number or monday.month != counts[number - 1][0].month) and len(months) <= number:
            months = months.ljust(number) + f"{monday:%b} "
    return [Text(months.rstrip(), style="dim"), *picture([("", [count for _, count in counts])])]


def _day_label(day: date) -> str:
    return f"{day:%a %d}".ljust(_DAY_LABEL)


def _ruler(per_hour: int) -> str:
    every = 3 if per_hour > 1 else 6
    return (
        " " * _DAY_LABEL + "".join(f"{hour:02d}".ljust(every * per_hour) for hour in range(0, _HOURS, every)).rstrip()
    )
