"""Quotas of a server for long-lived connections: event streams and followed logs. Tenants share them fairly.

While the quota is not used up, a tenant may open any number of connections. When it is used up, the tenant with the
most connections loses one to a tenant that has at least two fewer. So each of ten tenants can have a tenth, whatever
the others do.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

from mainspring.domain.errors import TooManyRequests, Unavailable
from mainspring.kernel.ids import TenantId
from mainspring.operations.access.caller import Caller

_RETRY_AFTER = 10


class _Held:
    def __init__(self, caller: Caller, leave: Callable[[], None]) -> None:
        self.tenant = caller.tenant
        self.own = _own(caller)
        self.leave = leave


class ConnectionQuota:
    """what: the kind of connection, in the plural. most: how many a server has. of_caller: how many a session or a
    token may have."""

    def __init__(self, what: str, most: int, of_caller: int) -> None:
        self.most = most
        self.of_caller = of_caller
        self._what = what
        self._taken: dict[TenantId, OrderedDict[_Held, None]] = {}
        self._of_caller: Counter[UUID] = Counter()

    def __len__(self) -> int:
        return sum(map(len, self._taken.values()))

    def check(self, caller: Caller) -> None:
        """Raise unless this caller can have one more."""
        if self._of_caller[_own(caller)] >= self.of_caller:
            raise _with_retry_after(
                TooManyRequests(
                    f"this session or token has {self.of_caller} {self._what} at this server", code="too_many_streams",
                    hint="close one, or poll until there is room",
                )
            )  # fmt: skip
        if len(self) >= self.most and self._to_leave(caller.tenant) is None:
            raise _with_retry_after(
                Unavailable(
                    f"too many {self._what} are open at this server", code="streams_full",
                    hint="poll until there is room",
                )
            )  # fmt: skip

    @contextmanager
    def hold(self, caller: Caller, leave: Callable[[], None]) -> Iterator[None]:
        """Count a connection for as long as the block runs. `leave` is called when another tenant needs the connection,
        which then no longer counts. Raises as `check` does, because several callers may have passed `check`
        together."""
        self.check(caller)
        if len(self) >= self.most and (leaving := self._to_leave(caller.tenant)) is not None:
            self._free(leaving)
            leaving.leave()
        mine = _Held(caller, leave)
        self._taken.setdefault(mine.tenant, OrderedDict())[mine] = None
        self._of_caller[mine.own] += 1
        try:
            yield
        finally:
            self._free(mine)

    def _to_leave(self, tenant: TenantId) -> _Held | None:
        """The newest connection of the tenant with the most, if this tenant has at least two fewer."""
        most = max(self._taken.values(), key=len, default=None)
        if most is None or len(most) < len(self._taken.get(tenant, ())) + 2:
            return None
        return next(reversed(most))

    def _free(self, place: _Held) -> None:
        of_tenant = self._taken.get(place.tenant)
        if of_tenant is None or place not in of_tenant:
            return
        del of_tenant[place]
        if not of_tenant:
            del self._taken[place.tenant]
        self._of_caller[place.own] -= 1
        if not self._of_caller[place.own]:
            del self._of_caller[place.own]


def _own(caller: Caller) -> UUID:
    return caller.session or caller.credential


def _with_retry_after(refusal: Unavailable) -> Unavailable:
    refusal.retry_after = _RETRY_AFTER
    return refusal
