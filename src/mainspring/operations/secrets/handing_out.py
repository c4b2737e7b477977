"""Puts the values of secrets into the orders of runs that name them, when a worker gets them.

It happens after the claim is committed, with one statement for all runs of the reply that name secrets. A run whose
secret was deleted, or is not for it any more, fails with the reason. Nothing is cached but data keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from mainspring.domain.intake.job_secrets import SecretScope, named_secrets
from mainspring.kernel.ids import TenantId
from mainspring.kernel.logs import about_run, get_logger
from mainspring.operations.secrets.data_keys import DataKeys
from mainspring.operations.secrets.external import AFTER_FAILURE, ExternalStores, NotThere, StoreAway, decode_external
from mainspring.operations.secrets.master_keys import NoMasterKey
from mainspring.operations.secrets.sealing import Undecryptable, place_of_secret, unseal
from mainspring.store import secrets
from mainspring.store.pool import Connection
from mainspring.store.secrets import SealedSecret
from mainspring.wire.exchange import Outcome, RunOrder
from mainspring.wire.secrets import RunSecrets

log = get_logger("secrets")
_AGAIN_AFTER = 30.0  # seconds, where another server or another worker may do better


Place = tuple[TenantId, str]


class NamedByRun(msgspec.Struct, frozen=True):
    order: RunOrder
    tenant: TenantId
    names: list[str]


class _Withheld(Exception):
    """Why a run does not get its secrets. `retry`: it may get them later."""

    def __init__(self, why: str, *, retry: bool = False, after: float = _AGAIN_AFTER) -> None:
        super().__init__(why)
        self.retry = retry
        self.after = after


def naming_secrets(orders: Sequence[RunOrder]) -> list[NamedByRun]:
    """Those of the orders that name secrets. An order without a setup names none."""
    return [
        NamedByRun(order, TenantId(order.tenant), list(named))
        for order in orders
        if order.setup is not None and order.tenant is not None and (named := named_secrets(order.task, order.setup))
    ]


class SecretHandout:
    def __init__(self, data_keys: DataKeys, external: ExternalStores) -> None:
        self._data_keys = data_keys
        self._external = external

    async def add(self, connection: Connection, naming: Sequence[NamedByRun], *, takes_secrets: bool) -> list[Outcome]:
        """Add the secrets to the orders. Return the failures of runs that do not get them. `takes_secrets`: whether the
        worker is new enough to hide them."""
        found: dict[Place, SealedSecret] = {}
        if takes_secrets:
            wanted = {(one.tenant, name) for one in naming for name in one.names}
            found = {(row.tenant_id, row.name): row for row in await secrets.sealed(connection, wanted)}
        outside = await self._read_outside(found)
        failures = []
        for one in naming:
            try:
                if not takes_secrets:
                    raise _Withheld("its worker is too old for secrets: upgrade the worker", retry=True)
                one.order.secrets = RunSecrets(
                    {name: await self._value(one, name, found, outside) for name in one.names}
                )
            except _Withheld as why:
                failures.append(_failure(one.order, why))
        return failures

    async def _read_outside(self, found: dict[Place, SealedSecret]) -> dict[Place, str | BaseException]:
        """The values that are in stores outside, all at once."""
        places = {place: row for place, row in found.items() if row.external_text is not None}
        reads = (self._external.value(row.tenant, decode_external(row.external_text or "")) for row in places.values())
        return dict(zip(places, await asyncio.gather(*reads, return_exceptions=True), strict=True))

    async def _value(
        self,
        run: NamedByRun,
        name: str,
        found: dict[Place, SealedSecret],
        outside: dict[Place, str | BaseException],
    ) -> str:
        row = found.get((run.tenant, name))
        if row is None:
            raise _Withheld(f"the secret {name!r} does not exist any more")
        scope = SecretScope(frozenset(row.queues), frozenset(row.tasks))
        if (refusal := scope.refusal(name, run.order.queue, run.order.task)) is not None:
            raise _Withheld(refusal)
        if row.external_text is not None:
            return _outside(name, outside[run.tenant, name])
        try:
            key = await self._data_keys.unwrap(run.tenant, row.key_id, row.wrapped)
            return unseal(key, row.sealed, place_of_secret(run.tenant, name, row.version)).decode()
        except NoMasterKey as error:
            raise _Withheld(f"the secret {name!r} cannot be decrypted: {error.detail}", retry=True) from None
        except Undecryptable:
            raise _Withheld(f"the secret {name!r} cannot be decrypted: what is stored of it was changed") from None


def _outside(name: str, value: str | BaseException) -> str:
    """Raises _Withheld."""
    if isinstance(value, str):
        return value
    if isinstance(value, NotThere):
        raise _Withheld(f"the secret {name!r} is not there: {value}")
    if isinstance(value, StoreAway):
        raise _Withheld(f"the secret {name!r} cannot be read: {value}", retry=True, after=AFTER_FAILURE)
    raise value


def _failure(order: RunOrder, why: _Withheld) -> Outcome:
    """A run that may get its secrets later uses no attempt: it has not begun."""
    run = about_run(order.tenant, order.job_id, order.run_id, order.attempt)
    log.warning("a run does not get its secrets", **run, reason=str(why), again=why.retry)
    if why.retry:
        return Outcome(order.run_id, order.fence, "RETURNED", error=str(why), retry_after=why.after, unstarted=True)
    return Outcome(order.run_id, order.fence, "FAILED", error=str(why), retry=False, unstarted=True)
