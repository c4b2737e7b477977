"""What the processes of an attempt use: samples if it lasts, at intervals that grow, and the sum at the end."""

from __future__ import annotations

from collections.abc import Callable

from mainspring.wire.usage import Usage

_FIRST_SAMPLE = 1.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 2.0, 30.0
_PART_OF_AGE = 20.0
_MOST_SAMPLES = 60
_CHANGE = 0.05  # of the memory; with less, and hardly any CPU time, nothing is reported


class AttemptUsage:
    """The usage of one attempt. `spent_before`: the CPU seconds that its process had used before. `request_sample` asks
    for a sample, as long as there are processes."""

    def __init__(self, request_sample: Callable[[], None], spent_before: float = 0.0) -> None:
        self.request_sample: Callable[[], None] | None = request_sample
        self._before = spent_before
        self._asked_at = 0.0
        self._next_sample = _FIRST_SAMPLE
        self._samples: list[tuple[float, float, int]] = []
        self._last: tuple[float, int] | None = None
        self._told: tuple[float, int] | None = None
        self._cpu: float | None = None
        self._peak = 0

    def ask(self, age: float) -> None:
        """Measure the processes if it is time. `age`: seconds since the attempt began."""
        if self.request_sample is not None and age >= self._next_sample:
            self._asked_at = age
            self._next_sample = age + min(_LONGEST_PAUSE, max(_SHORTEST_PAUSE, age / _PART_OF_AGE))
            self.request_sample()

    def sampled(self, cpu: float, resident: int) -> None:
        cpu = max(0.0, cpu - self._before)
        self._last = (cpu, resident)
        self._cpu, self._peak = cpu, max(self._peak, resident)
        self._samples.append((round(self._asked_at, 1), round(cpu, 3), resident))
        if len(self._samples) > _MOST_SAMPLES:
            del self._samples[1::2]

    def ended(self, cpu: float, peak: int) -> None:
        """`cpu` counts from the beginning of the process."""
        self._cpu, self._peak = max(0.0, cpu - self._before), max(self._peak, peak)

    def has_news(self) -> bool:
        """Whether much has changed since this last returned True."""
        if self._last is None or not self._changed(*self._last):
            return False
        self._told = self._last
        return True

    def now(self) -> Usage | None:
        """The last sample. None if there is none."""
        if self._last is None:
            return None
        cpu, resident = self._last
        return Usage(round(cpu, 3), self._peak, resident)

    def final(self) -> Usage | None:
        """The final usage, or None if nothing is known."""
        if self._cpu is None:
            return None
        return Usage(round(self._cpu, 3), self._peak, samples=self._samples)

    def _changed(self, cpu: float, resident: int) -> bool:
        if self._told is None:
            return True
        told_cpu, told_resident = self._told
        return cpu - told_cpu > _CHANGE or abs(resident - told_resident) > told_resident * _CHANGE
