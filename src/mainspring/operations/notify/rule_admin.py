"""Rules: create, change, delete, read and mute."""

from __future__ import annotations

import msgspec

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidInput
from mainspring.domain.notify.channel_kinds import check_name
from mainspring.domain.notify.rules import MOST_RULES, OF_INSTALLATION, NotifyRule, no_rule, read_rule, unknown_channel
from mainspring.domain.tags import changed_meanwhile, check_named_version
from mainspring.kernel.ids import DEFAULT_TENANT
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.paging.cursors import cursor_after_names, name_cursor
from mainspring.store import alerts, channels, rules
from mainspring.store.pool import Connection, Store
from mainspring.store.rules import RuleRow
from mainspring.wire.rules import EscalateIn, MuteRequest, RuleList, RuleRequest, RuleView

log = get_logger("rules")

_LONGEST_MUTE = 366 * 86400.0
_encode = msgspec.json.Encoder().encode
decode_rule = msgspec.json.Decoder(NotifyRule).decode


class RuleAdmin:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def rules(self, caller: Caller, cursor: str | None, limit: int) -> RuleList:
        """The rules of the tenant, by name. Rules of jobs are with their jobs."""
        after = name_cursor(cursor)
        async with self._store.read() as connection:
            rows = await rules.page(connection, caller.tenant, after, limit + 1)
        following = cursor_after_names(rows, limit)
        return RuleList([_view(row) for row in rows[:limit]], following)

    async def rule(self, caller: Caller, name: str) -> RuleView:
        async with self._store.read() as connection:
            row = await rules.get(connection, caller.tenant, name)
        if row is None:
            raise no_rule(name)
        return _view(row)

    async def put(self, caller: Caller, name: str, request: RuleRequest, if_version: int | None) -> bool:
        """Create or change a rule. Returns whether it was created."""
        check_name(name, "rule")
        rule = read_rule(request)
        async with self._store.change() as connection:
            return await put_rule(connection, caller, name, rule, if_version)

    async def delete(self, caller: Caller, name: str, if_version: int | None) -> RuleView:
        """Delete a rule. What it has not told yet is not told."""
        async with self._store.change() as connection:
            return _view(await delete_rule(connection, caller, name, if_version))

    async def mute(self, caller: Caller, name: str, request: MuteRequest | None) -> RuleView:
        """Tell nothing for so long. None ends the mute."""
        seconds = None
        if request is not None:
            seconds = parse_duration(request.duration, "for", most=_LONGEST_MUTE, zero_ok=False)
        async with self._store.change() as connection:
            row = await rules.lock(connection, caller.tenant, name)
            if row is None:
                raise no_rule(name)
            if not await rules.mute(connection, row, seconds, caller.name):
                raise changed_meanwhile(f"the rule {name!r}")
            was = {"muted": row.muted_until is not None, "seconds": None}
            await record(connection, caller, "rule", name, was, {"muted": seconds is not None, "seconds": seconds})
            if seconds is None:
                await alerts.make_due(connection, caller.tenant, name)
        return await self.rule(caller, name)


async def put_rule(
    connection: Connection, caller: Caller, name: str, rule: NotifyRule, if_version: int | None = None
) -> bool:
    """Create or change a rule in the caller's transaction. Returns whether it was created."""
    if caller.tenant != DEFAULT_TENANT and (installation := OF_INSTALLATION.intersection(rule.on)):
        raise InvalidInput(
            f"{min(installation)} is about the installation", field="on",
            hint="an administrator of the tenant default can make this rule there",
        )  # fmt: skip
    text, tenant = _encode(rule).decode(), caller.tenant
    row = await rules.lock(connection, tenant, name)
    check_named_version("rule", name, row, if_version)
    found = await channels.share(connection, tenant, rule.channels)
    for channel in rule.channels:
        if channel not in found:
            field = "to" if channel in rule.to else "escalate.to"
            raise unknown_channel(channel, await channels.names(connection, tenant), field)
    if row is not None and decode_rule(row.rule_text) == rule:
        return False
    if row is None:
        if await rules.count(connection, tenant) >= MOST_RULES:
            raise InvalidInput(f"the tenant has {MOST_RULES} rules already", field="name", hint="delete one first")
        done = await rules.insert(connection, tenant, name, rule.on, rule.channels, text, caller.name)
    else:
        done = await rules.change(connection, row, rule.on, rule.channels, text, caller.name)
    if not done:
        raise changed_meanwhile(f"the rule {name!r}")
    was = None if row is None else decode_rule(row.rule_text)
    await record(connection, caller, "rule", name, was, rule)
    log.info("rule changed", tenant=tenant, rule=name, by=caller.name)
    return row is None


async def delete_rule(connection: Connection, caller: Caller, name: str, if_version: int | None = None) -> RuleRow:
    """Delete a rule in the caller's transaction. Returns it as it was."""
    row = await rules.lock(connection, caller.tenant, name)
    if row is None:
        raise no_rule(name)
    check_named_version("rule", name, row, if_version)
    if not await rules.delete(connection, row):
        raise changed_meanwhile(f"the rule {name!r}")
    await alerts.forget_group(connection, caller.tenant, name)
    await record(connection, caller, "rule", name, decode_rule(row.rule_text), None)
    log.info("rule deleted", tenant=caller.tenant, rule=name, by=caller.name)
    return row


def _view(row: RuleRow) -> RuleView:
    rule = decode_rule(row.rule_text)
    escalate = None if rule.escalate is None else EscalateIn(rule.escalate.after, rule.escalate.to)
    return RuleView(
        name=row.name, version=row.version, created_at=row.created_at, updated_at=row.updated_at,
        updated_by=row.updated_by, muted_until=row.muted_until, on=rule.on, to=rule.to, description=rule.description,
        job=rule.job, task=rule.task, queue=rule.queue, labels=rule.labels, group_wait=rule.group_wait,
        group_interval=rule.group_interval, repeat_interval=rule.repeat_interval, quiet=rule.quiet,
        escalate=escalate, over=rule.over, above=rule.above, below=rule.below,
    )  # fmt: skip
