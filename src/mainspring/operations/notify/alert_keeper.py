"""Compares what has happened with the rules, and makes messages. One server at a time does so, under an advisory lock.

The transaction of a cause does nothing for this: the end of a run is a row of the history, and a missed fire has a row
of its own. A round reads those since the watermark, as the rollups do, and moves the watermark in the transaction that
stores alerts and messages. So a round that a killed server has not committed is made again, and nothing is lost or told
twice. What is in no other table is appended by its cause (handlers.py), and deleted in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import asyncpg
import msgspec

from mainspring.domain.notify.messages import SHOWN_ITEMS, Message, title_of
from mainspring.domain.notify.rules import FAILURES, NotifyRule
from mainspring.kernel.clock import Clock
from mainspring.kernel.ids import TenantId, uuid7
from mainspring.kernel.logs import get_logger
from mainspring.operations.notify.alert_decisions import AlertDecisions, decide
from mainspring.operations.notify.conditions import PAGES, condition_of, subject_of, why_it_holds
from mainspring.operations.notify.matching import (
    OF_JOBS,
    Happened,
    NamedRule,
    Rules,
    alerts_of,
    of_event,
    of_missed,
    of_runs,
    rule_of_group,
)
from mainspring.operations.notify.rule_admin import decode_rule
from mainspring.store import alerts, channels, notifications, rollups, rules, tenants
from mainspring.store.alerts import AlertRow, NewAlert
from mainspring.store.pool import Connection, Store
from mainspring.wire.notifications import MessageItem

log = get_logger("alerts")

_MINUTE, _HOUR = timedelta(minutes=1), timedelta(hours=1)  # what a round reads; more if it is far behind
_MOST_EVENTS = 1000
_MOST_DUE = 20_000
_KEPT = 30 * 86400.0
_GROUPS_KEPT = 2 * 86400.0
_PRUNE_EVERY = 3600.0
_encode = msgspec.json.Encoder().encode


class AlertKeeper:
    """page_url: where people open the page."""

    name = "alert_keeper"
    evaluate_every = 15.0  # seconds between evaluations of conditions

    def __init__(self, store: Store, clock: Clock, page_url: str | None = None, *, interval: float = 1.0) -> None:
        self.interval = interval
        self._store = store
        self._clock = clock
        self._page_url = page_url
        self._pruned_at: float | None = None
        self._slice = _HOUR
        self._evaluated_at: float | None = None

    async def run_once(self) -> int:
        """Returns how many messages were made."""
        made = 0
        while True:
            try:
                count, behind = await self._round()
            except asyncpg.QueryCanceledError:
                self._slice = _MINUTE  # an hour with tens of millions of runs takes longer than a statement may
                raise
            made += count
            if not behind:
                return made

    async def _round(self) -> tuple[int, bool]:
        """How many messages were made, and whether there is more to read."""
        async with self._store.reads.acquire() as connection:
            if await alerts.seen_until(connection) is None:
                return 0, False
            now, horizon = await rollups.horizon(connection)
            async with connection.transaction():
                if not await alerts.lock(connection):
                    return 0, False
                start = await alerts.seen_until(connection)
                watching = await alerts.watching_tenants(connection)
                if start is None or not watching:
                    await alerts.stop_watching(connection)
                    return 0, False
                known = await self._rules(connection)
                behind = await self._read(connection, start, horizon, now, watching, known)
                await self._evaluate(connection, known, now)
                made = await self._make_messages(connection, known, now)
                await self._prune(connection)
        return made, behind

    async def _rules(self, connection: Connection) -> Rules:
        found: dict[TenantId, list[NamedRule]] = {}
        for row in await rules.all_rules(connection):
            found.setdefault(row.tenant_id, []).append(NamedRule(row.name, decode_rule(row.rule_text), row.muted_until))
        return found

    async def _read(
        self,
        connection: Connection,
        start: datetime,
        horizon: datetime | None,
        now: datetime,
        watching: Sequence[TenantId],
        known: Rules,
    ) -> bool:
        """Store alerts of what has happened since `start`. Returns whether there is more."""
        happened = [of_event(event) for event in await alerts.take_events(connection, _MOST_EVENTS)]
        end = start if horizon is None else min(horizon, start + self._slice)
        succeeded = []
        if end > start:
            wanted = [one for one in watching if any("success" in named.rule.on for named in known.get(one, ()))]
            ended = await alerts.ended_runs(connection, start, end, watching, wanted)
            missed = await alerts.missed_jobs(connection, start, end, watching)
            happened += [*map(of_runs, ended), *map(of_missed, missed)]
            succeeded = [one for one in ended if not one.failed and one.job_id is not None]
            if not await alerts.move_seen(connection, start, end):
                raise RuntimeError("the watermark of notifications has moved under the lock")
        elif now < start - _MINUTE and await alerts.move_seen(connection, start, now):
            log.warning("the clock has been set back; ends of runs are compared with rules from now on")
        if new := alerts_of(happened, known, now):
            await alerts.raise_alerts(connection, new)
        if succeeded:
            await alerts.close_alerts(connection, succeeded, now, FAILURES)
        return horizon is not None and start < end < horizon

    async def _evaluate(self, connection: Connection, known: Rules, now: datetime) -> None:
        """Raise and close the alerts of conditions, every few seconds."""
        moment = self._clock.monotonic()
        if self._evaluated_at is not None and moment - self._evaluated_at < self.evaluate_every:
            return
        self._evaluated_at = moment
        found: list[NewAlert] = []
        for tenant, some in known.items():
            for named in some:
                if (condition := condition_of(named.rule)) is None:
                    continue
                rule, subject = named.rule, subject_of(named.rule)
                reason = await why_it_holds(connection, tenant, rule, condition)
                if reason is None:
                    await alerts.close_condition(connection, tenant, named.name, condition, subject, now)
                else:
                    one = Happened(
                        tenant, (condition,), subject, now, now, count=0, reason=reason, task=rule.task,
                        queue=rule.queue,
                        path=PAGES.get(condition, "/ui/"),
                    )  # fmt: skip
                    found += alerts_of([one], {tenant: [named]}, now)
        if found:
            await alerts.raise_alerts(connection, found)

    async def _make_messages(self, connection: Connection, known: Rules, now: datetime) -> int:
        due = await alerts.due_alerts(connection, now, _MOST_DUE)
        groups: dict[tuple[TenantId, str], list[AlertRow]] = {}
        for row in due:
            groups.setdefault((row.tenant_id, row.grp), []).append(row)
        if not groups:
            return 0
        told_at = await alerts.told_groups(connection, list(groups))
        named = {(tenant, one.name): one for tenant, some in known.items() for one in some}
        made, all_told, all_over = 0, [], []
        for (tenant, group), rows in groups.items():
            own = group.startswith(OF_JOBS)
            found = NamedRule(group, rule_of_group(group)) if own else named.get((tenant, group))
            if found is None:  # the rule is gone
                all_over += rows
                continue
            decisions = decide(rows, found.rule, found.muted_until, told_at.get((tenant, group)), now)
            made += await self._make(connection, tenant, group, found.rule, decisions, now, None if own else found.name)
            all_told += decisions.told
            all_over += decisions.over
        if all_told:
            await alerts.set_alerts(connection, all_told)
        if all_over:
            await alerts.delete_alerts(connection, all_over)
        return made

    async def _make(
        self,
        connection: Connection,
        tenant: TenantId,
        group: str,
        rule: NotifyRule,
        decisions: AlertDecisions,
        now: datetime,
        name: str | None,
    ) -> int:
        """Store the messages of a group, one for each channel."""
        made = 0
        if decisions.items:
            await alerts.group_told(connection, tenant, group, now)
            made += await self._store_message(connection, tenant, group, decisions.items, rule.to, now, name)
        if decisions.escalated and rule.escalate is not None:
            to = rule.escalate.to
            made += await self._store_message(
                connection, tenant, group, decisions.escalated, to, now, name, escalated=True
            )
        return made

    async def _store_message(
        self,
        connection: Connection,
        tenant: TenantId,
        group: str,
        items: list[MessageItem],
        to: Sequence[str],
        now: datetime,
        rule: str | None,
        *,
        escalated: bool = False,
    ) -> int:
        of, known = await tenants.get(connection, tenant), await channels.share(connection, tenant, to)
        for channel in to:
            message_id = uuid7()
            message = Message(
                id=str(message_id), tenant=of.name if of is not None else str(tenant), group=group, created_at=now,
                items=items[:SHOWN_ITEMS], more=max(0, len(items) - SHOWN_ITEMS), rule=rule, url=self._page_url,
                escalated=escalated,
            )  # fmt: skip
            text = _encode(message).decode()
            if channel in known:
                await notifications.insert(connection, message_id, tenant, channel, rule, title_of(message), text)
            else:
                gone = f"there is no channel {channel!r}"
                await notifications.insert_ended(connection, message_id, tenant, channel, gone, title_of(message), text)
        return len(to)

    async def _prune(self, connection: Connection) -> None:
        moment = self._clock.monotonic()
        if self._pruned_at is None or moment - self._pruned_at > _PRUNE_EVERY:
            self._pruned_at = moment
            await notifications.prune(connection, _KEPT)
            await alerts.prune_groups(connection, _GROUPS_KEPT)
