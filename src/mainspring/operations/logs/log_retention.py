"""How long the output of runs with certain labels is kept: read and set, for a tenant."""

from __future__ import annotations

import msgspec

from mainspring.domain.log_retention import KeepRule, read_rules
from mainspring.domain.tags import changed_meanwhile, check_version
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.store import log_retention
from mainspring.store.log_retention import RetentionRow
from mainspring.store.pool import Store
from mainspring.wire.log_retention import LabelRetention, LogRetentionRequest, LogRetentionView

log = get_logger("log_retention")

_encode = msgspec.json.Encoder().encode
_rules = msgspec.json.Decoder(list[KeepRule]).decode


class LogRetentionAdmin:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, caller: Caller) -> LogRetentionView:
        async with self._store.reads.acquire() as connection:
            return _view(await log_retention.get(connection, caller.tenant))

    async def put(self, caller: Caller, request: LogRetentionRequest, if_version: int | None) -> LogRetentionView:
        """Replace all rules. They hold for output that begins afterwards."""
        wanted = read_rules(request)
        async with self._store.change() as connection:
            row = await log_retention.lock(connection, caller.tenant)
            check_version("log retention", row.version, if_version)
            before = _rules(row.rules_text)
            if before != wanted:
                if not await log_retention.put(connection, caller.tenant, row, _encode(wanted).decode(), caller.name):
                    raise changed_meanwhile("the log retention")
                old, new = ({"log_retention": rules} for rules in (before, wanted))
                await record(connection, caller, "tenant", caller.tenant, old, new)
                log.info("log retention changed", tenant=caller.tenant, rules=len(wanted), by=caller.name)
            return _view(await log_retention.get(connection, caller.tenant))


def _view(row: RetentionRow) -> LogRetentionView:
    rules = [LabelRetention(rule.labels, rule.seconds) for rule in _rules(row.rules_text)]
    return LogRetentionView(rules, row.version, row.updated_at, row.updated_by)
