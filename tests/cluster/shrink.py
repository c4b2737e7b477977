"""A failing history becomes a small one that fails in the same way.

Jobs are left out with their runs, calls, effects and logs, half of them at first, then smaller parts, as long as the
rule still finds the same violation. What the violation names stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from tests.cluster.history import Event, History, Violation
from tests.cluster.report import subjects
from tests.cluster.rules import RULES

_ABOUT_JOBS = ("jobs", "runs", "run_history", "attempts", "missed_fires", "dead_letters")


def shrunk(history: History, violation: Violation) -> History:
    """The smallest history that was found."""
    about = subjects(history, violation.words)
    owners = _owners(history)
    named = about.jobs | {owners[run] for run in about.runs if run in owners}
    candidates = sorted({*history.jobs, *owners.values()} - named)
    left = _fewest(candidates, lambda kept: _fails(_with(history, {*kept, *named}, owners), violation))
    return _with(history, {*left, *named}, owners)


def _owners(history: History) -> dict[str, str]:
    """run -> its job, or itself."""
    return {run: str(life[0].row.get("job_id") or run) for run, life in history.runs.items()}


def _fails(history: History, violation: Violation) -> bool:
    return violation.words in set(RULES[violation.rule](history))


def _fewest(candidates: Sequence[str], fails: Callable[[Sequence[str]], bool]) -> Sequence[str]:
    """Leave out parts of the candidates, smaller and smaller ones, while it fails."""
    parts = 2
    while candidates:
        size = max(1, len(candidates) // parts)
        for start in range(0, len(candidates), size):
            rest = [*candidates[:start], *candidates[start + size :]]
            if fails(rest):
                candidates, parts = rest, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts *= 2
    return candidates


def _with(history: History, jobs: Collection[str], owners: dict[str, str]) -> History:
    """The history of these jobs alone. What belongs to no job stays."""

    def kept(run: str) -> bool:
        return owners.get(run, run) in jobs

    def event_is_kept(event: Event) -> bool:
        if event.table not in _ABOUT_JOBS:
            return True
        job = event.row.get("job_id")
        return kept(str(event.row["run_id"])) if event.row.get("run_id") is not None else job is None or job in jobs

    def call_is_kept(named: Collection[str]) -> bool:
        known = [name for name in named if name in history.jobs or name in owners]
        return not known or any(name in jobs or kept(name) for name in known)

    return replace(
        history,
        events=[event for event in history.events if event_is_kept(event)],
        lines=[line for line in history.lines if kept(line.run)],
        calls=[
            call
            for call in history.calls
            if call_is_kept((call.target, str(call.answer.get("job_id")), str(call.answer.get("run_id"))))
        ],
        reports=[report for report in history.reports if kept(report.run)],
        logs=[log for log in history.logs if kept(log.run)],
        live_runs=[row for row in history.live_runs if kept(str(row.get("run_id")))],
    )
