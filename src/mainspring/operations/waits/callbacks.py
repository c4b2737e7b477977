"""Callbacks: a service that a step has called answers later, at the one-time address that it was given.

The body is stored under the lock of the run, once for each attempt. If the step waits already, it is due at once;
otherwise it finds the body when it begins to wait. So one that arrives before the answer 202 counts, too.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

import msgspec

from mainspring.domain.errors import Conflict, InvalidInput, NotFound
from mainspring.domain.transitions import StoredState
from mainspring.kernel.callback_addresses import attempt_of
from mainspring.kernel.config import MAX_RESULT_BYTES
from mainspring.operations.signals import Signals
from mainspring.store import waits
from mainspring.store.pool import Store
from mainspring.wire.callbacks import CallbackTaken

_decode = msgspec.json.Decoder().decode
_AT_ONCE = 8  # more of them wait: callbacks of a server take few of its connections


class Callbacks:
    def __init__(self, store: Store, signals: Signals) -> None:
        self._store = store
        self._signals = signals
        self._turns = asyncio.Semaphore(_AT_ONCE)

    def attempt(self, token: str) -> tuple[UUID, int]:
        """The run and the fence that an address names. The body of others is not read."""
        named = attempt_of(token)
        if named is None:
            raise NotFound("there is no such address", code="no_callback", hint="use the address as it was given")
        return named

    async def take(self, attempt: tuple[UUID, int], body: bytes) -> CallbackTaken:
        """The step that has given the address away ends with this body."""
        text = _json(body)
        run_id, fence = attempt
        async with self._turns, self._store.change() as connection:
            run = await waits.lock_called(connection, run_id)
            waiting = run is not None and run == (StoredState.WAITING, fence + 1)
            if not waiting and run != (StoredState.RUNNING, fence):
                raise Conflict("nothing waits for this callback any more", code="callback_over")
            if not await waits.keep_callback(connection, run_id, fence, text, waiting=waiting):
                raise Conflict("this callback was made before", code="callback_over")
        if waiting:
            self._signals.wakes.publish(0.0)
        return CallbackTaken()


def _json(body: bytes) -> str:
    """The body as JSON text that PostgreSQL takes. Raises InvalidInput."""
    if not body.strip():
        return "null"
    if len(body) > MAX_RESULT_BYTES:
        raise InvalidInput("the body is too large", field="$", expected=f"at most {MAX_RESULT_BYTES:,} bytes")
    try:
        _decode(body)
        text = body.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidInput("the body is not JSON", field="$", expected="JSON, or nothing") from None
    return text
