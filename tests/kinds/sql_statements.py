"""A worker's slots with nothing but sql tasks, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from mainspring.kinds.sql.call import SqlCall
from mainspring.kinds.sql.executor import SqlExecutor, build
from mainspring.wire.exchange import RunOrder
from mainspring.wire.execution import RunSetup
from mainspring.worker.execution.attempt import Attempt, AttemptEnding, key_of
from mainspring.worker.execution.runner import Runner
from mainspring.worker.executors.setting import ExecutorSetting
from mainspring.worker.processes.watchdog_client import WatchdogClient
from tests.worker.exchange_server import an_order
from tests.worker.sinks import KeptLog

LONGEST = 60.0


class Statements:
    def __init__(self, *connections: str, shared: bool = False, kill_grace: float = 5.0) -> None:
        self.log = KeptLog()
        executor = build(
            ExecutorSetting(
                tasks={}, slots=8, watchdog=WatchdogClient(), kill_grace=kill_grace, open_log=self.log.open,
                confine_all=shared, options={"connection": list(connections)},
            )
        )  # fmt: skip
        assert isinstance(executor, SqlExecutor)
        self.executor = executor
        self.runner = Runner(100, [executor], kill_grace=kill_grace, report=self._report, notify=lambda: None)
        self._endings: dict[tuple[int, int], asyncio.Future[AttemptEnding]] = {}

    def start(self, statement: str, *parameters: Any, **fields: Any) -> tuple[Attempt, asyncio.Future[AttemptEnding]]:
        return self.take(a_statement(statement, *parameters, **fields))

    def take(self, order: RunOrder) -> tuple[Attempt, asyncio.Future[AttemptEnding]]:
        attempt = Attempt(order, key_of(order), 0.0)
        ending = self._endings[attempt.key] = asyncio.get_running_loop().create_future()
        self.runner.take([attempt])
        return attempt, ending

    async def run(self, statement: str, *parameters: Any, **fields: Any) -> AttemptEnding:
        async with asyncio.timeout(LONGEST):
            return await self.start(statement, *parameters, **fields)[1]

    async def result(self, statement: str, *parameters: Any, **fields: Any) -> Any:
        ending = await self.run(statement, *parameters, **fields)
        assert ending.status == "SUCCESS", ending.error
        assert ending.result is not None
        return msgspec.json.decode(ending.result)

    async def error(self, statement: str, *parameters: Any, **fields: Any) -> str:
        ending = await self.run(statement, *parameters, **fields)
        assert ending.status == "FAILED", ending
        return ending.error or ""

    @property
    def said(self) -> str:
        return self.log.data.decode()

    def _report(self, attempt: Attempt, ending: AttemptEnding) -> None:
        self._endings[attempt.key].set_result(ending)


def a_statement(
    statement: str, *parameters: Any, connection: str = "here", transaction: bool = True, **order: Any
) -> RunOrder:
    call = SqlCall(connection, statement, list(parameters), transaction)
    order.setdefault("tenant", 1)
    return an_order("sql", setup=RunSetup(sql=call), **order)


def url_file(folder: Path, url: str, name: str = "here") -> str:
    """The value of --connection for this URL."""
    file = folder / f"{name}.url"
    file.write_text(f"{url}\n")
    return f"{name}={file}"


async def seen(look: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LONGEST):
        while not await look():
            await asyncio.sleep(0.02)


async def is_running(database: asyncpg.Connection, words: str) -> bool:
    """Whether a session of ours runs a statement with these words."""
    return bool(
        await database.fetchval(
            "select count(*) from pg_stat_activity where application_name like 'mainspring a-job%' "
            "and state = 'active' and query like '%' || $1 || '%'",
            words,
        )
    )
