"""Decides what a group of alerts tells now, and when there is something to do about each of them again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from mainspring.domain.notify.messages import RECOVERED
from mainspring.domain.notify.rules import FAILURES, LASTING, NotifyRule, is_quiet
from mainspring.store.alerts import AlertRow, ToldAlert
from mainspring.wire.notifications import MessageItem

QUIET_AFTER = timedelta(minutes=5)  # what has no job has recovered if nothing failed for so long
_TRY_AGAIN = timedelta(minutes=1)
_decode_item = msgspec.json.Decoder(MessageItem).decode


class AlertDecisions(msgspec.Struct):
    """items: of a message. escalated: of a message to those whom the rule names for it. told: the alerts that stay, and
    what becomes of them. over: the alerts that are done."""

    items: list[MessageItem] = []
    escalated: list[MessageItem] = []
    told: list[ToldAlert] = []
    over: list[AlertRow] = []


def decide(
    rows: Sequence[AlertRow], rule: NotifyRule, muted_until: datetime | None, told_at: datetime | None, now: datetime
) -> AlertDecisions:
    """What the due alerts of one group tell. told_at: when the group was told something last."""
    if muted_until is not None and muted_until > now:
        lasting = [row for row in rows if row.event in LASTING]
        return AlertDecisions(told=_later(lasting, muted_until), over=[row for row in rows if row.event not in LASTING])
    if is_quiet(rule.quiet, now):
        return AlertDecisions(told=_later(rows, now + _TRY_AGAIN))
    free_at = None if told_at is None else told_at + timedelta(seconds=rule.group_interval)
    if free_at is not None and free_at > now:
        return AlertDecisions(told=_later(rows, free_at))
    decisions = AlertDecisions()
    for row in rows:
        _decide_one(row, rule, now, decisions)
    return decisions


def _later(rows: Sequence[AlertRow], due_at: datetime) -> list[ToldAlert]:
    return [ToldAlert(row, row.told_at, row.escalated_at, due_at) for row in rows]


def _decide_one(row: AlertRow, rule: NotifyRule, now: datetime, decisions: AlertDecisions) -> None:
    item = _item(row)
    if row.event not in LASTING:
        decisions.items.append(item)
        decisions.over.append(row)
        return
    closed_at = row.closed_at
    if closed_at is None and _is_quiet_again(row, now):
        closed_at = row.last_at + QUIET_AFTER
    if row.told_at is None:
        decisions.items.append(item)
    if closed_at is not None:
        if RECOVERED in rule.on:
            reason = None if row.job_id or row.event not in FAILURES else "nothing has failed for five minutes"
            decisions.items.append(
                msgspec.structs.replace(item, event=RECOVERED, since=closed_at, count=1, reason=reason)
            )
        decisions.over.append(row)
        return
    told_at, escalated_at = row.told_at, row.escalated_at
    if told_at is None:
        told_at = now
    elif row.acknowledged_at is None and _repeats(row, rule, now):
        decisions.items.append(msgspec.structs.replace(item, reminder=True))
        told_at = now
    if _escalates(row, rule, now):
        decisions.escalated.append(msgspec.structs.replace(item, reminder=row.told_at is not None))
        escalated_at = now
    decisions.told.append(ToldAlert(row, told_at, escalated_at, _due_again(row, rule, told_at, escalated_at)))


def _item(row: AlertRow) -> MessageItem:
    return msgspec.structs.replace(_decode_item(row.item_text), since=row.opened_at, count=max(1, row.count))


def _is_quiet_again(row: AlertRow, now: datetime) -> bool:
    """Runs without a job of their own: there is no next run of it whose success would tell."""
    return row.job_id is None and row.event in FAILURES and now - row.last_at >= QUIET_AFTER


def _repeats(row: AlertRow, rule: NotifyRule, now: datetime) -> bool:
    assert row.told_at is not None
    return row.event != "first_failure" and row.told_at + timedelta(seconds=rule.repeat_interval) <= now


def _escalates(row: AlertRow, rule: NotifyRule, now: datetime) -> bool:
    if rule.escalate is None or row.escalated_at is not None or row.acknowledged_at is not None:
        return False
    return row.opened_at + timedelta(seconds=rule.escalate.after) <= now


def _due_again(row: AlertRow, rule: NotifyRule, told_at: datetime, escalated_at: datetime | None) -> datetime | None:
    times = []
    if row.job_id is None and row.event in FAILURES:
        times.append(row.last_at + QUIET_AFTER)
    if row.acknowledged_at is None:
        if row.event != "first_failure":
            times.append(told_at + timedelta(seconds=rule.repeat_interval))
        if rule.escalate is not None and escalated_at is None:
            times.append(row.opened_at + timedelta(seconds=rule.escalate.after))
    return min(times, default=None)
