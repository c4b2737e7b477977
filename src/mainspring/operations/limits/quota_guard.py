"""The quotas of a tenant at its submissions.

What a server remembers of quotas is in the registry of gates, which notices changes. A tenant without quotas costs a
lookup in memory. Submissions take tokens from one bucket in the database, some at a time. Tokens that a server has
taken and does not use are lost after a second, so in any window of t seconds at most quota * (t + 2) jobs are accepted.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from functools import partial

import msgspec

from mainspring.domain.job import JobDefinition
from mainspring.domain.quotas import exceeded, over
from mainspring.domain.rates import Bucket
from mainspring.kernel.clock import Clock
from mainspring.kernel.ids import TenantId
from mainspring.operations.access.caller import Caller
from mainspring.operations.limits.gate_registry import GateRegistry
from mainspring.store import quotas
from mainspring.store.outage_queue import despite_outages
from mainspring.store.pool import Connection, Store

_KEPT = 1.0  # seconds for which tokens that were taken in advance are kept
_PART = 10  # of the tokens of a second: how many are taken at once


class _Taken(msgspec.Struct):
    """Tokens of submissions that this server has taken. `empty_until`: until then the bucket has none. `asking`: one
    request at a time takes more."""

    per_second: int
    left: int = 0
    until: float = 0.0
    empty_until: float = 0.0
    asking: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


class QuotaGuard:
    def __init__(self, store: Store, registry: GateRegistry, clock: Clock) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self._taken: dict[TenantId, _Taken] = {}

    async def admit(self, caller: Caller, definitions: Sequence[JobDefinition]) -> None:
        """Raise QuotaExceeded or OverQuota unless the tenant may submit these jobs now."""
        tenant = caller.tenant
        allowed = self._registry.quotas.get(tenant)
        if allowed is None:
            return
        if (most := allowed.payload_bytes) is not None:
            for index, item in enumerate(definitions):
                field = "payload" if len(definitions) == 1 else f"jobs[{index}].payload"
                _check_size(most, _size(item.payload), field)
        if (per_second := allowed.submissions_per_second) is not None:
            await self._take(tenant, per_second, len(definitions))

    async def admit_request(self, caller: Caller, count: int = 1) -> None:
        """As `admit`, for a request that counts as so many jobs, however many it stores."""
        allowed = self._registry.quotas.get(caller.tenant)
        if allowed is not None and allowed.submissions_per_second is not None:
            await self._take(caller.tenant, allowed.submissions_per_second, count)

    def check_payload(self, caller: Caller, payload: msgspec.Raw | str | None, field: str = "payload") -> None:
        """Raise QuotaExceeded if the payload that a job or a run gets is too large for the tenant."""
        allowed = self._registry.quotas.get(caller.tenant)
        if allowed is not None and allowed.payload_bytes is not None:
            size = len(memoryview(payload)) if isinstance(payload, msgspec.Raw) else _size(payload)
            _check_size(allowed.payload_bytes, size, field)

    @property
    def history_days(self) -> int:
        """For how long the history of a tenant without a quota is kept."""
        return self._registry.history_days

    def counts_stored_jobs(self, caller: Caller) -> bool:
        allowed = self._registry.quotas.get(caller.tenant)
        return allowed is not None and allowed.stored_jobs is not None

    async def _take(self, tenant: TenantId, per_second: int, count: int) -> None:
        if count > per_second:
            raise exceeded("submissions_per_second", per_second, count, hint="send smaller batches")
        taken = self._taken.get(tenant)
        if taken is None or taken.per_second != per_second:
            taken = self._taken[tenant] = _Taken(per_second)
        if self._spend(taken, count):
            return
        async with taken.asking:
            if self._spend(taken, count):  # another request has taken more meanwhile
                return
            more = partial(self._more, tenant, count, taken)
            got = await despite_outages(self._store.waiting, more)
            taken.left, taken.until = got - count, self._clock.monotonic() + _KEPT

    def _spend(self, taken: _Taken, count: int) -> bool:
        now = self._clock.monotonic()
        if taken.left < count or now >= taken.until:
            if now < taken.empty_until:
                raise over(
                    "submissions_per_second", *(taken.per_second,) * 2, more=count, seconds=taken.empty_until - now
                )
            return False
        taken.left -= count
        return True

    async def _more(self, tenant: TenantId, count: int, taken: _Taken) -> int:
        """Take `count` tokens from the bucket, and some in advance. Raises OverQuota if it has not so many."""
        async with self._store.change() as connection:
            row = await quotas.lock_submissions(connection, tenant)
            if row is None or row.submissions_per_second is None:
                return count
            most = row.submissions_per_second
            bucket = Bucket(1.0 / most, most, row.tat)
            tokens = bucket.tokens(row.now)
            if tokens < count:
                wait = bucket.wait(row.now, count - 1)
                if not tokens:
                    taken.empty_until = self._clock.monotonic() + bucket.wait(row.now)
                raise over("submissions_per_second", most, most - tokens, more=count, seconds=wait)
            got = min(tokens, max(count, math.ceil(most / _PART)))
            await quotas.take_submissions(connection, tenant, bucket.take(got, row.now))
        return got


class PartGuard(QuotaGuard):
    """For the parts of a request that was admitted: they take no tokens of submissions."""

    def __init__(self, whole: QuotaGuard) -> None:
        super().__init__(whole._store, whole._registry, whole._clock)

    async def _take(self, tenant: TenantId, per_second: int, count: int) -> None:
        """The whole request was admitted."""


def _size(payload: str | None) -> int:
    if payload is None:
        return 0
    return len(payload) if payload.isascii() else len(payload.encode())


def _check_size(most: int, size: int, field: str) -> None:
    if size > most:
        raise exceeded("payload_bytes", most, size, field=field, hint="send a smaller payload")


async def take_job_places(connection: Connection, tenant: TenantId) -> int | None:
    """How many jobs the tenant may have. The caller stores jobs in this transaction, and then calls `check_stored`."""
    return await quotas.stored_jobs_allowed(connection, tenant)


async def check_stored(connection: Connection, tenant: TenantId, most: int | None) -> None:
    """Raise QuotaExceeded if the transaction has stored more jobs than the tenant may have."""
    if most is None:
        return
    stored = await quotas.count_stored_jobs(connection, tenant, most + 1)
    if stored > most:
        raise exceeded("stored_jobs", most, stored, hint="delete jobs that are not needed")
