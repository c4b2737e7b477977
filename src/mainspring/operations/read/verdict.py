"""The verdict: how things are, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from mainspring.domain.durations import format_duration
from mainspring.domain.texts import sentence
from mainspring.store.rollups import Rollup
from mainspring.wire.insights import Verdict
from mainspring.wire.runs import QueueView

_MINUTE = timedelta(minutes=1)
_JUDGED = 20  # runs, before a share says something
_FAILING = 0.05
_BEHIND = 60.0  # seconds
LOOK_BACK = timedelta(hours=1)


def verdict_of(
    problems: Sequence[str],
    queues: Sequence[QueueView],
    minutes: Sequence[Rollup],
    now: datetime,
    warnings: Sequence[str] = (),
) -> Verdict:
    """`minutes`: the rollups of the last hour, in any order. `warnings`: what goes wrong slowly."""
    if problems:
        more = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
        return Verdict("critical", f"{sentence(problems[0])}{more}")
    by_time = sorted(minutes, key=lambda each: each.at, reverse=True)
    if (failing := _failing(by_time, now)) is not None:
        return failing
    late = [queue for queue in queues if (queue.oldest_seconds or 0) > _BEHIND and queue.depth and not queue.paused]
    if late:
        worst = max(late, key=lambda queue: queue.oldest_seconds or 0)
        seconds = round(worst.oldest_seconds or 0)
        others = "" if len(late) == 1 else f", and {len(late) - 1} other {'queue' if len(late) == 2 else 'queues'}"
        return Verdict(
            "warning",
            f"The queue {worst.name} falls behind{others}: its oldest run waits for {format_duration(seconds)}.",
            now - timedelta(seconds=seconds),
        )  # fmt: skip
    if warnings:
        more = f" ({len(warnings) - 1} more)" if len(warnings) > 1 else ""
        return Verdict("warning", f"{sentence(warnings[0])}{more}")
    succeeded, failed = sum(each.succeeded for each in minutes), sum(each.failed for each in minutes)
    if not succeeded + failed:
        return Verdict("ok", "All is well. No run ended in the last hour.")
    return Verdict(
        "ok", f"All is well. {_share(succeeded, failed)} of the {succeeded + failed:,} runs of the last hour succeeded."
    )


def _failing(newest_first: Sequence[Rollup], now: datetime) -> Verdict | None:
    """Whether too many runs of the last 15 minutes failed, and since when."""
    recent = [each for each in newest_first if each.at > now - 15 * _MINUTE]
    succeeded, failed = sum(each.succeeded for each in recent), sum(each.failed for each in recent)
    if succeeded + failed < _JUDGED or failed <= _FAILING * (succeeded + failed):
        return None
    since = recent[-1].at
    for each in newest_first:
        judged = each.succeeded + each.failed
        if judged and each.failed <= _FAILING * judged:
            break
        since = each.at if judged else since
    share = _share(failed, succeeded)
    return Verdict("warning", f"{share} of the runs of the last 15 minutes failed ({failed:,}).", since)


def _share(part: int, rest: int) -> str:
    share = 100 * part / (part + rest)
    return f"{share:.0f} %" if share == round(share) else f"{min(max(share, 0.1), 99.9):.1f} %"
