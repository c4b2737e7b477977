"""Compares the fires of imported jobs with those of their source, for the next year."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile

from mainspring.cli.imports.model import Imported

YEAR = timedelta(days=365)
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Compared:
    """missing: fires of the source that the job does not have. extra: those that only the job has."""

    job: Imported
    count: int
    missing: list[datetime]
    extra: list[datetime]

    @property
    def same(self) -> bool:
        return not self.missing and not self.extra


def compare(job: Imported, start: datetime) -> Compared | None:
    """None if nothing here knows the rules of the source."""
    if job.fires is None:
        return None
    end = start + YEAR
    theirs = {_minute(one) for one in job.fires(start, end)}
    ours = set(own_fires(job, start, end))
    return Compared(job, len(theirs), sorted(theirs - ours), sorted(ours - theirs))


def own_fires(job: Imported, start: datetime, end: datetime) -> Iterator[datetime]:
    """The fires that the job would have. Raises InvalidInput if no server would accept it."""
    import msgspec

    from mainspring.domain.file_jobs import in_file, wanted_job
    from mainspring.domain.intake.decoding_errors import in_words
    from mainspring.domain.schedules.fires import fires
    from mainspring.domain.schedules.schedule import for_job
    from mainspring.wire.jobs import JobRequest

    try:
        request = msgspec.json.decode(msgspec.json.encode(job.body), type=JobRequest)
    except msgspec.ValidationError as error:
        raise in_words(error, JobRequest) from None
    schedule = wanted_job(in_file(request, job.id), start, {}).schedule
    if not schedule.recurring:
        return iter(())
    stored = for_job(schedule, 1, job.id, start)
    return map(_minute, takewhile(lambda one: one < end, fires(stored, start - timedelta(seconds=1))))


def _minute(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)


def differences(found: Compared) -> Iterator[str]:
    """One line, and a few times for each difference."""
    if found.same:
        yield f"{found.job.id}: {found.count:,} fires in the next year, all the same"
        return
    yield f"{found.job.id}: {len(found.missing) + len(found.extra):,} differences in the next year ({found.job.source})"
    for title, moments in (("only in the source", found.missing), ("only here", found.extra)):
        for moment in moments[:_SHOWN]:
            yield f"  {title}: {moment:%Y-%m-%dT%H:%M:%SZ}"
        if len(moments) > _SHOWN:
            yield f"  {title}: {len(moments) - _SHOWN:,} more"
