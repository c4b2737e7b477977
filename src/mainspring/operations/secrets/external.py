"""Secrets in stores outside: values that are read when a worker needs them, and kept in memory for a bounded time.

A value is read by one task for all runs that need it. An exchange waits a moment for it; if the store is slow, the run
is tried again, and finds the value in memory. So a store that hangs delays only the runs that need it.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Protocol, TypeVar

import msgspec

from mainspring.domain.errors import InvalidInput, MainspringError
from mainspring.domain.intake.job_secrets import check_secret_value
from mainspring.domain.texts import meant, shown
from mainspring.kernel.clock import Clock
from mainspring.kernel.logs import get_logger
from mainspring.wire.secrets import ExternalSecret

WAIT = 0.5  # seconds that an exchange waits
AFTER_FAILURE = 5.0  # seconds until a store is asked again that failed
_MOST_CACHED = 1000
_MOST_READS = 32  # at once, of all stores
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*(/[A-Za-z0-9_][A-Za-z0-9_.@+-]*)*\Z")
_LONGEST_PATH = 500

decode_external = msgspec.json.Decoder(ExternalSecret).decode

log = get_logger("secrets")
Kept = TypeVar("Kept")


class NotThere(Exception):
    """The store has no such secret, or no useful value."""


class StoreAway(Exception):
    """The store cannot be read now."""


class SecretReader(Protocol):
    """A store outside. tenants: who may name it. seconds: how long a value is kept."""

    @property
    def tenants(self) -> frozenset[str]: ...

    @property
    def seconds(self) -> float: ...

    async def read(self, tenant: str, path: str, key: str | None) -> str:
        """Raises NotThere and StoreAway. Their words have no value."""


class ExternalStores:
    def __init__(self, readers: Mapping[str, SecretReader], clock: Clock) -> None:
        self._readers = readers
        self._clock = clock
        self._cached: OrderedDict[tuple[str, ExternalSecret], tuple[float, str]] = OrderedDict()
        self._failed: OrderedDict[tuple[str, ExternalSecret], tuple[float, Exception]] = OrderedDict()
        self._reading: dict[tuple[str, ExternalSecret], asyncio.Task[str]] = {}
        self._begun: dict[tuple[str, ExternalSecret], float] = {}
        self._room = asyncio.Semaphore(_MOST_READS)

    def check(self, tenant: str, given: ExternalSecret) -> None:
        """Raises InvalidInput unless the tenant may name this place."""
        allowed = sorted(name for name, reader in self._readers.items() if tenant in reader.tenants)
        if given.store not in allowed:
            raise InvalidInput(
                f"there is no store {shown(given.store)} for this tenant", field="external.store",
                hint=meant(given.store, allowed, "an operator of the servers names stores: MAINSPRING_SECRET_STORES"),
            )  # fmt: skip
        for field, text in (("path", given.path), ("key", given.key)):
            if text is not None and (len(text) > _LONGEST_PATH or _PATH.fullmatch(text) is None):
                raise InvalidInput(
                    f"{shown(text)} is no {field} of a secret", field=f"external.{field}",
                    expected="names of letters, digits and _ . @ + -, separated by /",
                )  # fmt: skip

    async def value(self, tenant: str, place: ExternalSecret) -> str:
        """The value, which is younger than the store says. Raises NotThere and StoreAway."""
        wanted = (tenant, place)
        now = self._clock.monotonic()
        if (known := self._cached.get(wanted)) is not None and known[0] > now:
            return known[1]
        if (failure := self._failed.get(wanted)) is not None and failure[0] > now:
            raise failure[1]
        task = self._reading.get(wanted)
        if task is None:
            task = self._reading[wanted] = asyncio.create_task(self._read(wanted))
            self._begun[wanted] = now
            task.add_done_callback(lambda done: self._forget(wanted, done))
        # One exchange waits for a slow store, and later ones do not.
        if any(read[1].store == place.store and now - begun > WAIT for read, begun in self._begun.items()):
            raise StoreAway(f"the store {place.store!r} has not answered yet")
        await asyncio.wait({task}, timeout=WAIT)
        if not task.done():
            raise StoreAway(f"the store {place.store!r} has not answered yet")
        return task.result()

    async def close(self) -> None:
        for task in list(self._reading.values()):
            task.cancel()
        await asyncio.gather(*self._reading.values(), return_exceptions=True)

    def _forget(self, wanted: tuple[str, ExternalSecret], done: asyncio.Task[str]) -> None:
        del self._reading[wanted], self._begun[wanted]
        if not done.cancelled():
            done.exception()  # otherwise asyncio logs that it was not looked at

    async def _read(self, wanted: tuple[str, ExternalSecret]) -> str:
        tenant, place = wanted
        reader = self._readers.get(place.store)
        try:
            if reader is None or tenant not in reader.tenants:
                raise StoreAway(f"this server has no store {place.store!r} for the tenant")
            async with self._room:
                value = await reader.read(tenant, place.path, place.key)
            _check(value, place)
        except (NotThere, StoreAway) as failure:
            log.warning("a store outside gave no secret", tenant=tenant, store=place.store, error=str(failure))
            self._cached.pop(wanted, None)
            self._failed[wanted] = (self._clock.monotonic() + AFTER_FAILURE, failure)
            _shorten(self._failed)
            raise
        self._cached[wanted] = (self._clock.monotonic() + reader.seconds, value)
        self._cached.move_to_end(wanted)
        _shorten(self._cached)
        return value


def _check(value: str, place: ExternalSecret) -> None:
    try:
        check_secret_value(value)
    except MainspringError as refusal:
        raise NotThere(f"what the store {place.store!r} has is not a secret: {refusal.detail}") from None


def _shorten(cached: OrderedDict[tuple[str, ExternalSecret], Kept]) -> None:
    while len(cached) > _MOST_CACHED:
        cached.popitem(last=False)
