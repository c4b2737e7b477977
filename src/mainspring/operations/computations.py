"""Long computations of requests: in one thread of the server, one at a time, in turns by tenant.

A computation holds the interpreter for up to 5 ms, and then the event loop has a turn. Several threads would take turns
with each other too, and the loop would have the fewest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from mainspring.domain.errors import TooManyRequests
from mainspring.kernel.ids import TenantId
from mainspring.kernel.tenant_turns import NoTurn, Share, TenantTurns

P = ParamSpec("P")
R = TypeVar("R")

_MOST_WAITING = 32  # of a tenant
_LONGEST_WAIT = 10.0


class Computations:
    def __init__(self) -> None:
        self._turns = TenantTurns(Share(1), Share(1), most_waiting=_MOST_WAITING, longest_wait=_LONGEST_WAIT)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="computation")

    async def run(self, tenant: TenantId, work: Callable[P, R], *arguments: P.args, **more: P.kwargs) -> R:
        """What `work` returns. Raises TooManyRequests. The caller must hold neither locks nor a connection."""
        try:
            await self._turns.take(tenant)
        except NoTurn:
            raise TooManyRequests(
                "too many requests of this tenant wait for a long computation", hint="send fewer at a time"
            ) from None
        done = asyncio.get_running_loop().run_in_executor(self._thread, partial(work, *arguments, **more))
        done.add_done_callback(lambda _: self._turns.give_back(tenant))  # also if the request has gone meanwhile
        return await asyncio.shield(done)
