"""Operations on many, by hand: the test says when a slice is carried out, and after which statement it is killed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from mainspring.operations.bulk.performer import Performer
from mainspring.roles.assembly import Assembly
from mainspring.store.pool import Store

View = dict[str, Any]
_STATEMENTS = ("execute", "fetch", "fetchrow", "fetchval")


def performer_of(assembly: Assembly) -> Performer:
    return next(task for task in assembly.periodic_tasks if isinstance(task, Performer))


async def count(api: httpx.AsyncClient, noun: str, verb: str, **chosen: Any) -> View:
    answer = await api.post(f"/v1/{noun}:act", json={"verb": verb, "filter": chosen, "dry_run": True})
    assert answer.status_code == 200, answer.text
    found: View = answer.json()
    return found


async def begin(api: httpx.AsyncClient, noun: str, verb: str, **body: Any) -> View:
    """Begin an operation. A filter is counted first."""
    if "filter" in body and "expected" not in body:
        body["expected"] = (await count(api, noun, verb, **body["filter"]))["count"]
    answer = await api.post(f"/v1/{noun}:act", json={"verb": verb, **body})
    assert answer.status_code == 202, answer.text
    view: View = answer.json()
    assert answer.headers["Location"] == f"/v1/operations/{view['id']}"
    return view


async def read(api: httpx.AsyncClient, view: View) -> View:
    found: View = (await api.get(f"/v1/operations/{view['id']}")).json()
    return found


async def act(api: httpx.AsyncClient, assembly: Assembly, noun: str, verb: str, **body: Any) -> View:
    """Carry out a whole operation."""
    view = await begin(api, noun, verb, **body)
    await performer_of(assembly).run_once()
    return await read(api, view)


class Killed(BaseException):
    """The process is gone: nobody handles this."""


class Tripwire:
    """A connection that is killed after its nth statement."""

    def __init__(self, connection: Any, after: int) -> None:
        self._connection = connection
        self._left = after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._connection, name)
        if name not in _STATEMENTS:
            return found

        async def counted(*arguments: Any, **named: Any) -> Any:
            result = await found(*arguments, **named)
            self._left -= 1
            if not self._left:
                raise Killed
            return result

        return counted


class KillingStore:
    """A store whose changes are killed after their nth statement."""

    def __init__(self, store: Store, after: int) -> None:
        self._store = store
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @asynccontextmanager
    async def change(self) -> AsyncIterator[Any]:
        async with self._store.change() as connection:
            yield Tripwire(connection, self._after)
