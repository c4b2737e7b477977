"""Compares what has happened with the rules: which alerts follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from urllib.parse import quote

import msgspec

from mainspring.domain.notify.messages import one_line
from mainspring.domain.notify.rules import FAILURES, GROUP_WAIT, LASTING, NotifyRule
from mainspring.kernel.ids import TenantId
from mainspring.store.alerts import EndedRuns, MissedFiresRow, NewAlert, NotableEvent
from mainspring.wire.notifications import MessageItem
from mainspring.wire.rules import JobNotify

OF_JOBS = "jobs:"  # begins the group of rules of jobs; no rule has a colon in its name
_decode_notify = msgspec.json.Decoder(list[JobNotify]).decode
_decode_labels = msgspec.json.Decoder(dict[str, str]).decode
_encode = msgspec.json.Encoder().encode
_LONGEST_SUBJECT = 200
_LONGEST_REASON = 500


class NamedRule(msgspec.Struct, frozen=True):
    name: str
    rule: NotifyRule
    muted_until: datetime | None = None


Rules = Mapping[TenantId, Sequence[NamedRule]]


class Happened(msgspec.Struct, frozen=True):
    """Something that has happened, with what rules compare. events: its names; a rule gets the first that it wants."""

    tenant_id: TenantId
    events: tuple[str, ...]
    subject: str
    first_at: datetime
    last_at: datetime
    count: int = 1
    reason: str | None = None
    job_id: str | None = None
    run_id: str | None = None
    task: str | None = None
    queue: str | None = None
    labels: Mapping[str, str] = {}
    notify: Sequence[JobNotify] = ()
    path: str | None = None


def of_runs(ended: EndedRuns) -> Happened:
    """Runs of one job, or of one task and queue, that ended alike."""
    if ended.failed:
        events = tuple(event for event in FAILURES if event != "tries_exhausted" or ended.exhausted)
    else:
        events = ("success",)
    of_job = ended.job_id is not None
    page = f"/ui/jobs/{quote(ended.job_id or '', safe='')}" if of_job else f"/ui/runs/{ended.run_id}"
    return Happened(
        tenant_id=ended.tenant_id, events=events, subject=subject_of_run(ended.job_id, ended.task, ended.queue),
        first_at=ended.first_at, last_at=ended.last_at, count=ended.count,
        reason=ended.words if ended.failed else None, job_id=ended.job_id, run_id=str(ended.run_id), task=ended.task,
        queue=ended.queue, labels=_labels(ended.labels_text), notify=_notify(ended.notify_text), path=page,
    )  # fmt: skip


def of_missed(missed: MissedFiresRow) -> Happened:
    return Happened(
        tenant_id=missed.tenant_id, events=("fire_missed",),
        subject=subject_of_run(missed.job_id, missed.task, missed.queue),
        first_at=missed.first_at, last_at=missed.last_at, count=missed.count, reason=missed.words,
        job_id=missed.job_id, task=missed.task, queue=missed.queue, labels=_labels(missed.labels_text),
        notify=_notify(missed.notify_text), path=f"/ui/jobs/{quote(missed.job_id, safe='')}",
    )  # fmt: skip


def of_event(event: NotableEvent) -> Happened:
    return Happened(
        tenant_id=event.tenant_id, events=(event.event,), subject=one_line(event.subject, _LONGEST_SUBJECT),
        first_at=event.happened_at, last_at=event.happened_at, reason=event.reason, job_id=event.job_id,
        task=event.task, queue=event.queue, path=event.path, labels=_labels(event.labels_text),
        notify=_notify(event.notify_text),
    )  # fmt: skip


def alerts_of(happened: Iterable[Happened], rules: Rules, now: datetime) -> list[NewAlert]:
    """The alerts of all rules, each key once."""
    found: dict[tuple[TenantId, str, str, str], NewAlert] = {}
    for one in happened:
        for named in rules.get(one.tenant_id, ()):
            rule = named.rule
            event = next((event for event in one.events if event in rule.on), None)
            if event is not None and rule.concerns(job=one.job_id, task=one.task, queue=one.queue, labels=one.labels):
                _add(found, _alert(one, named.name, event, None, now + timedelta(seconds=rule.group_wait)))
        for own in one.notify:
            event = next((event for event in one.events if event in own.on), None)
            if event is not None:
                group = own_group(own)
                _add(found, _alert(one, group, event, list(own.to), now + timedelta(seconds=GROUP_WAIT)))
    return list(found.values())


def own_group(own: JobNotify) -> str:
    """The group of a rule of a job: all jobs with the same events and channels share messages."""
    return f"{OF_JOBS}{','.join(sorted(own.to))}:{','.join(sorted(own.on))}"


def rule_of_group(group: str) -> NotifyRule:
    """The rule that a group of rules of jobs stands for."""
    channels, _, events = group.removeprefix(OF_JOBS).partition(":")
    return NotifyRule(on=events.split(","), to=channels.split(","))


def _alert(one: Happened, group: str, event: str, channels: list[str] | None, due_at: datetime) -> NewAlert:
    reason = None if one.reason is None else one_line(one.reason, _LONGEST_REASON)
    item = MessageItem(
        event=event, subject=one.subject, since=one.first_at, count=one.count, reason=reason, job_id=one.job_id,
        run_id=one.run_id, task=one.task, queue=one.queue, path=one.path,
    )  # fmt: skip
    return NewAlert(
        tenant_id=one.tenant_id, grp=group, event=event, subject=one.subject, channels=channels,
        job_id=one.job_id if event in LASTING else None, item=_encode(item).decode(), opened_at=one.first_at,
        last_at=one.last_at, count=one.count, due_at=due_at,
    )  # fmt: skip


def _add(found: dict[tuple[TenantId, str, str, str], NewAlert], new: NewAlert) -> None:
    key = (new.tenant_id, new.grp, new.event, new.subject)
    known = found.setdefault(key, new)
    if known is new:
        return
    known.opened_at = min(known.opened_at, new.opened_at)
    if new.last_at > known.last_at:
        known.last_at, known.item = new.last_at, new.item
    known.count += new.count


def subject_of_run(job_id: str | None, task: str, queue: str) -> str:
    text = f"task {task} in queue {queue}" if job_id is None else f"job {job_id}"
    return one_line(text, _LONGEST_SUBJECT)


def _labels(text: str | None) -> Mapping[str, str]:
    try:
        return {} if text is None else _decode_labels(text)
    except msgspec.DecodeError:
        return {}


def _notify(text: str | None) -> Sequence[JobNotify]:
    """A rule that a newer server has stored and this one cannot read does not stop the others."""
    try:
        return () if text is None else _decode_notify(text)
    except msgspec.DecodeError:
        return ()
