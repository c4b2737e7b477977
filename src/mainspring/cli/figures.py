"""The figures of an overview in words, for `mainspring status` and `mainspring top`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mainspring.cli.text_formats import span

if TYPE_CHECKING:
    from mainspring.wire.insights import Overview

_BARS = "▁▂▃▄▅▆▇█"


def scheduling(seen: Overview) -> str:
    late = f"the most overdue job is {span(seen.fire_lag)} late" if seen.fire_lag >= 1 else "nothing is overdue"
    return f"{counted(seen.schedulers, 'scheduler')}, {seen.shards_held} of {seen.shards} shards held, {late}"


def workers(seen: Overview) -> str:
    states = ", ".join(f"{number} {state.lower()}" for state, number in sorted(seen.workers.items())) or "none"
    return f"{states}; {seen.busy} of {counted(seen.slots, 'slot')} busy"


def runs(seen: Overview) -> str:
    oldest = "" if seen.oldest_seconds is None else f" (oldest {span(seen.oldest_seconds)})"
    held = f"{seen.held:,} held by limits, " if seen.held else ""
    return f"{seen.waiting:,} waiting{oldest}, {held}{seen.scheduled:,} backing off, {seen.busy:,} running"


def last_minute(seen: Overview) -> str:
    ended = seen.succeeded + seen.failed
    rate = f" ({seen.succeeded / ended:.1%} succeeded)" if ended else ""
    return f"{seen.rate:.1f} runs/s, {seen.succeeded:,} succeeded, {seen.failed:,} failed{rate}"


def dead_letters(seen: Overview) -> str:
    about = "about " if seen.dead_letters_estimated else ""
    return f"{about}{seen.dead_letters:,}" + ("; see: mainspring dead-letter list" if seen.dead_letters else "")


def counted(number: int, word: str) -> str:
    return f"{number:,} {word}" + ("" if number == 1 else "s")


def sparkline(values: Sequence[float], width: int) -> str:
    """The last `width` values as small bars, from zero to the largest."""
    shown = values[-width:] if width > 0 else []
    most = max(shown, default=0.0)
    if most <= 0:
        return _BARS[0] * len(shown)
    return "".join(_BARS[min(len(_BARS) - 1, int(value / most * (len(_BARS) - 0.001)))] for value in shown)
