"""The metrics of tasks as text. A thousand tasks have 40,000 lines, so they are written without a client library, and
others have their turn in between."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.domain.rollups import LEAST_MS, Histogram
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.read.tenant_counts import TaskEnds

_OCTAVES = range(1, 26, 2)  # a millisecond to 4.6 hours
_BOUNDS = [f"{LEAST_MS / 1000 * 2**octave:g}" for octave in _OCTAVES]
_OUTCOMES = ("succeeded", "failed", "cancelled", "skipped")
_RUNS = "mainspring_task_runs_total"
_COUNTERS = {
    "retried": ("mainspring_task_retries_total", "Failed attempts before another"),
    "lost": ("mainspring_task_losses_total", "Attempts that were lost"),
    "missed": ("mainspring_task_missed_fires_total", "Fires that were missed"),
}
_DURATION = "mainspring_task_duration_seconds"
_LAG = "mainspring_task_start_lag_seconds"
_ESCAPED = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


async def task_metrics(tasks: Sequence[TaskEnds]) -> bytes:
    """What ended since midnight, by task and queue. A counter that begins again is nothing new to Prometheus."""
    families: dict[str, list[str]] = {_RUNS: _head(_RUNS, "counter", "Runs that ended today")}
    for name, words in _COUNTERS.values():
        families[name] = _head(name, "counter", words)
    families[_DURATION] = _head(_DURATION, "histogram", "Durations of runs")
    families[_LAG] = _head(_LAG, "histogram", "From due to started")
    slices = TimeSlices()
    for each in tasks:
        labels, counts = f'queue="{_escaped(each.queue)}",task="{_escaped(each.task)}"', each.ends.counts
        families[_RUNS] += [f'{_RUNS}{{outcome="{word}",{labels}}} {counts[word]}.0' for word in _OUTCOMES]
        for field, (name, _) in _COUNTERS.items():
            families[name].append(f"{name}{{{labels}}} {counts[field]}.0")
        families[_DURATION] += _histogram(_DURATION, labels, each.ends.ran, each.ends.ran_us / 1e6)
        families[_LAG] += _histogram(_LAG, labels, each.ends.lag, each.ends.lag.about_seconds)
        if slices.over:
            await slices.pause()
    return "".join(f"{line}\n" for lines in families.values() for line in lines).encode()


def _head(name: str, kind: str, words: str) -> list[str]:
    return [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]


def _histogram(name: str, labels: str, values: Histogram, total: float) -> list[str]:
    counts = zip(_BOUNDS, values.below(_OCTAVES), strict=True)
    count = values.total
    return [
        *(f'{name}_bucket{{le="{bound}",{labels}}} {number}.0' for bound, number in counts),
        f'{name}_bucket{{le="+Inf",{labels}}} {count}.0',
        f"{name}_count{{{labels}}} {count}.0",
        f"{name}_sum{{{labels}}} {total}",
    ]


def _escaped(text: str) -> str:
    return text.translate(_ESCAPED)
