"""A workflow run as a tree: each step below the last of those that it waits for. Pure: a view in, lines out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from mainspring.cli.screen import can_show, cell
from mainspring.cli.table import ELLIPSIS, cells, cut
from mainspring.cli.text_formats import span
from mainspring.kernel.texts import error_line

if TYPE_CHECKING:
    from rich.text import Text

    from mainspring.wire.workflows import MapProgress, StepRunView, WorkflowRunView

_LINES = ("├─ ", "└─ ", "│  ", "   ")
_PLAIN_LINES = ("|- ", "`- ", "|  ", "   ")
_STATUS_WIDTH = len("CANCELLED")
_GAP = 2
_NAMED = 4
_BRANCH = 3  # characters of a branch at its step
_BEFORE = 2  # rows above the first step that is at work
_LEAST_PACED = 1.0  # seconds; before, a pace says nothing
_ENDED = ("SUCCESS", "FAILED", "SKIPPED", "CANCELLED")


@dataclass(frozen=True, slots=True)
class _Row:
    branch: str
    step: StepRunView
    beside: list[str]


def tree_lines(view: WorkflowRunView, now: datetime, width: int | None, height: int | None = None) -> list[Text]:
    """The run and its steps, one line each. `width` None: nothing is cut. If there is not `height` for all of them,
    steps above those at work are left out."""
    from rich.text import Text

    rows = list(_rows(view.steps))
    names = max((cells(row.branch + row.step.name) for row in rows), default=0)
    if width is not None:
        names = min(names, max(10, width // 2))
    lines = [_head(view, now, width)]
    for row in rows:
        label = cell(_label(row, names)).plain
        line = Text(label + " " * (names - cells(label) + _GAP))
        status = cell(row.step.status or "WAITING")
        line.append(status.plain.ljust(_STATUS_WIDTH), style=status.style)
        note = _note(row, now)
        if note:
            room = None if width is None else max(1, width - names - _STATUS_WIDTH - 2 * _GAP)
            line.append(" " * _GAP + cell(note if room is None else cut(note, room)).plain)
        line.rstrip()
        lines.append(line)
    if view.next is not None:
        lines.append(cell(f"and {view.step_count - len(view.steps):,} more steps"))
    above = 0 if height is None else _above(rows, height - 2)
    return lines if above <= 0 else [lines[0], Text(f"{above:,} steps above", style="dim"), *lines[above + 1 :]]


def _label(row: _Row, room: int) -> str:
    """The step with its branch. In a deep place the beginning of the branch is left out, and the name stays."""
    whole = row.branch + row.step.name
    if cells(whole) <= room:
        return whole
    kept = max(_BRANCH, room - cells(ELLIPSIS) - cells(row.step.name))
    return cut((ELLIPSIS if kept < len(row.branch) else "") + row.branch[-kept:] + row.step.name, room)


def _above(rows: list[_Row], room: int) -> int:
    """How many rows stand above the window with the first step that is at work."""
    at_work = (place for place, row in enumerate(rows) if row.step.status not in (*_ENDED, "WAITING", None))
    first = next(at_work, 0)
    return 0 if len(rows) <= room else min(first - _BEFORE, len(rows) - room)


def counts_in_words(counts: dict[str, int], total: int) -> str:
    """ "3 of 5 steps: 2 SUCCESS, 1 FAILED, 2 WAITING"."""
    done = sum(number for state, number in counts.items() if state in _ENDED)
    parts = ", ".join(f"{number:,} {state}" for state, number in counts.items() if number)
    return f"{done:,} of {total:,} steps" + (f": {parts}" if parts else "")


def maps_in_words(view: WorkflowRunView, now: datetime) -> str:
    """The maps that are at work, with their pace: "resize: 40 of 100 members (40 %), 2.0/s, 30s left"."""
    parts = []
    for step in view.steps:
        if step.map is not None and step.status is not None and step.status not in _ENDED:
            pace = _pace(step.map, step.start_time or step.created_at, now)
            parts.append(f"{step.name}: " + ", ".join([_members(step.map), *pace]))
    return "; ".join(parts)


def _head(view: WorkflowRunView, now: datetime, width: int | None) -> Text:
    from rich.text import Text

    status = cell(view.status)
    line = Text(view.workflow_id + " " * _GAP, style="bold")
    line.append(status.plain, style=status.style)
    words = counts_in_words(view.counts, view.step_count)
    if view.start_time is not None:
        words += f", {span(((view.end_time or now) - view.start_time).total_seconds())}"
    if view.reruns:
        words += f", rerun {view.reruns}"
    if view.reason:
        words += f": {error_line(view.reason)}"
    room = None if width is None else max(1, width - cells(line.plain) - _GAP)
    line.append(" " * _GAP + cell(words if room is None else cut(words, room)).plain, style="not bold")
    return line


def _rows(steps: list[StepRunView]) -> Iterator[_Row]:
    """The steps in the order of the tree. It is walked without recursion: a chain may have thousands of steps."""
    by_name = {step.name: step for step in steps}
    depths = _depths(by_name)
    below: dict[str | None, list[StepRunView]] = {}
    for step in steps:
        known = [name for name in step.depends_on if name in by_name]
        parent = max(known, key=lambda name: depths[name]) if known else None
        below.setdefault(parent, []).append(step)
    fork, last, bar, blank = _LINES if can_show("".join(_LINES)) else _PLAIN_LINES
    left = [(step, "", step is below[None][-1]) for step in reversed(below.get(None, []))]
    while left:
        step, indent, is_last = left.pop()
        yield _Row(indent + (last if is_last else fork), step, step.depends_on if len(step.depends_on) > 1 else [])
        inner = indent + (blank if is_last else bar)
        children = below.get(step.name, [])
        left += [(child, inner, child is children[-1]) for child in reversed(children)]


def _depths(steps: dict[str, StepRunView]) -> dict[str, int]:
    """The longest way from a first step to each."""
    depths: dict[str, int] = {}
    for start in steps:
        stack = [start]
        while stack:
            name = stack[-1]
            parents = [one for one in steps[name].depends_on if one in steps]
            unknown = [one for one in parents if one not in depths and one not in stack]
            if unknown:
                stack += unknown
                continue
            depths[name] = 1 + max((depths.get(one, 0) for one in parents), default=-1)
            stack.pop()
    return depths


def _note(row: _Row, now: datetime) -> str:
    step = row.step
    parts = []
    if step.map is not None:
        parts.append(_members(step.map))
        if step.status not in _ENDED:
            parts += _pace(step.map, step.start_time or step.created_at, now)
    if step.start_time is not None:
        parts.append(span(((step.end_time or now) - step.start_time).total_seconds()))
    if step.attempt_number > 1:
        parts.append(f"attempt {step.attempt_number} of {step.max_attempts}")
    if step.rerun:
        parts.append(f"rerun {step.rerun}")
    waits = step.status in (None, "WAITING") and step.start_time is None  # for other steps
    if row.beside and waits:
        more = len(row.beside) - _NAMED
        parts.append("after " + ", ".join(row.beside[:_NAMED]) + (f" and {more} more" if more > 0 else ""))
    said = step.error_message or (None if waits else step.reason)
    if said:
        parts.append(error_line(said))
    return ", ".join(parts)


def _pace(progress: MapProgress, since: datetime | None, now: datetime) -> list[str]:
    """How fast members have ended so far, and how long the rest takes at that pace: ["1,250/s", "47s left"]."""
    seconds = 0.0 if since is None else (now - since).total_seconds()
    if not progress.ended or seconds < _LEAST_PACED:
        return []
    rate = progress.ended / seconds
    words = f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min"
    if progress.total is None or progress.total <= progress.ended:
        return [words]
    return [words, f"{span((progress.total - progress.ended) / rate)} left"]


def _members(progress: MapProgress) -> str:
    total = "?" if progress.total is None else f"{progress.total:,}"
    words = f"{progress.ended:,} of {total} members"
    if progress.total and progress.ended < progress.total:
        words += f" ({100 * progress.ended // progress.total} %)"
    if progress.failed:
        words += f", {progress.failed:,} failed"
    if progress.skipped:
        words += f", {progress.skipped:,} skipped"
    return words
