"""A run's effect happens once, over each database library, on a real database."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import asyncpg
import msgspec
import psycopg
import pytest
import sqlalchemy

import mainspring
from mainspring import Context
from mainspring.domain.errors import InvalidInput
from mainspring.store.embedded.access import ROLE
from mainspring.wire.runs import RunView
from tests.sdk.ledgers import ALL, CHARGE, CHARGES, COUNT, ON_POSTGRES, Ledger, Place, settled
from tests.sdk.wire_samples import run as run_sample

pytestmark = pytest.mark.anyio
MOMENT = datetime(2026, 11, 15, 9, tzinfo=UTC)


def context(attempt: int = 1, job_id: str = "billing") -> Context:
    return Context(job_id=job_id, run_id=f"run-{attempt}", attempt=attempt, scheduled_for=MOMENT, task="charge")


@pytest.fixture
def place(database_url: str, tmp_path: Path) -> Place:
    return Place(database_url, tmp_path)


class Opening:
    """Opens connections of the library under test."""

    def __init__(self, library: str, place: Place) -> None:
        self._open = ALL[library]
        self._place = place
        self.opened: list[Ledger] = []

    async def __call__(self) -> Ledger:
        self.opened.append(await self._open(self._place))
        return self.opened[-1]

    async def attempt_elsewhere(self, run: Any) -> bool:
        """An attempt that commits, with its own connection, loop and thread."""

        async def attempt() -> bool:
            ledger = await self._open(self._place)
            try:
                first = await charge(ledger, run)
                await settled(ledger.commit())
                return first
            finally:
                await settled(ledger.close())

        return await asyncio.to_thread(lambda: asyncio.run(attempt()))


@pytest.fixture
async def opening(request: pytest.FixtureRequest, place: Place) -> AsyncIterator[Opening]:
    opening = Opening(request.param, place)
    first = await opening()
    await settled(first.execute(CHARGES))
    await settled(first.commit())
    yield opening
    for ledger in opening.opened:
        await settled(ledger.close())


every_library = pytest.mark.parametrize("opening", ALL, indirect=True)
on_postgres = pytest.mark.parametrize("opening", ON_POSTGRES, indirect=True)


async def charge(ledger: Ledger, run: Any, **more: Any) -> bool:
    first = await settled(mainspring.exactly_once(ledger.connection, run, **more))
    if first:
        await settled(ledger.execute(CHARGE))
    return bool(first)


async def count(ledger: Ledger) -> int:
    found = await settled(ledger.execute(COUNT))
    await settled(ledger.rollback())
    return int(found)


@every_library
async def test_the_second_attempt_of_a_run_finds_its_work_done(opening: Opening) -> None:
    ledger, other = await opening(), await opening()
    assert await charge(ledger, context(attempt=1)) is True
    await settled(ledger.commit())
    assert await charge(other, context(attempt=2)) is False
    await settled(other.commit())
    assert await charge(other, context(job_id="another")) is True
    await settled(other.commit())
    assert await count(ledger) == 2


@every_library
async def test_a_rollback_takes_back_the_record_with_the_effect_even_where_the_table_was_born_in_it(
    opening: Opening,
) -> None:
    ledger = await opening()
    assert await charge(ledger, context()) is True
    await settled(ledger.rollback())
    assert await charge(ledger, context(attempt=2)) is True
    await settled(ledger.commit())
    assert await charge(ledger, context(attempt=3)) is False
    assert await count(ledger) == 1


@every_library
async def test_each_step_of_a_run_is_done_once(opening: Opening) -> None:
    ledger = await opening()
    answers = [await charge(ledger, context(), step=step) for step in ("card", "mail", "card", "mail")]
    await settled(ledger.commit())
    assert answers == [True, True, False, False]
    assert await charge(ledger, context()) is True  # a run without a step is different from its steps


@every_library
async def test_a_rollback_to_a_savepoint_takes_the_record_back(opening: Opening) -> None:
    ledger = await opening()
    assert await charge(ledger, context(), step="before") is True
    await settled(ledger.execute("savepoint inner_part"))
    assert await charge(ledger, context()) is True
    await settled(ledger.execute("rollback to savepoint inner_part"))
    assert await charge(ledger, context()) is True
    await settled(ledger.commit())
    assert await charge(ledger, context()) is False
    assert await charge(ledger, context(), step="before") is False


@every_library
async def test_old_records_are_forgotten_and_their_runs_would_be_done_again(opening: Opening) -> None:
    ledger = await opening()
    now = datetime.now(UTC)
    assert await settled(mainspring.forget_before(ledger.connection, now)) == 0  # there is no table yet
    await charge(ledger, "one")
    await charge(ledger, "two")
    await settled(ledger.commit())
    assert await settled(mainspring.forget_before(ledger.connection, now - timedelta(hours=1))) == 0
    assert await settled(mainspring.forget_before(ledger.connection, now + timedelta(hours=1))) == 2
    await settled(ledger.commit())
    assert await charge(ledger, "one") is True


@every_library
@pytest.mark.parametrize("first_commits", [True, False], ids=["commit", "rollback"])
async def test_of_two_attempts_at_once_the_second_waits_for_the_first(opening: Opening, first_commits: bool) -> None:
    first = await opening()
    await charge(first, "makes the table")
    await settled(first.commit())
    assert await charge(first, context(attempt=1)) is True
    second = asyncio.create_task(opening.attempt_elsewhere(context(attempt=2)))
    done, _ = await asyncio.wait([second], timeout=0.3)
    assert not done
    await settled(first.commit() if first_commits else first.rollback())
    assert await asyncio.wait_for(second, 60) is (not first_commits)
    assert await count(first) == 2


@on_postgres
async def test_many_who_find_no_table_at_the_same_time_all_get_on(opening: Opening) -> None:
    ledgers = [await opening() for _ in range(2)]
    assert await charge(ledgers[0], "zero") is True  # has created the table and not committed yet
    others = [asyncio.create_task(opening.attempt_elsewhere(f"key {number}")) for number in range(6)]
    done, _ = await asyncio.wait(others, timeout=0.3)
    assert not done
    await settled(ledgers[0].commit())
    assert await asyncio.wait_for(asyncio.gather(*others), 60) == [True] * 6
    assert await count(ledgers[1]) == 7


async def test_a_table_that_was_created_ahead_is_used_by_one_who_may_not_create_tables(
    place: Place, superuser_of: Callable[[str], str]
) -> None:
    with psycopg.connect(superuser_of(place.postgres)) as owner:
        owner.execute(mainspring.exactly_once_table())
        owner.execute("create role clerk_of_exactly_once")
        owner.execute("grant select, insert on mainspring_done to clerk_of_exactly_once")
        owner.commit()
        owner.execute("set role clerk_of_exactly_once")
        assert mainspring.exactly_once(owner, "a") is True
        assert mainspring.exactly_once(owner, "a") is False
        owner.rollback()
        owner.execute("reset role; drop owned by clerk_of_exactly_once; drop role clerk_of_exactly_once")


async def test_sqlite_without_a_transaction_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "db", isolation_level=None)
    with pytest.raises(InvalidInput, match="commits each statement") as caught:
        mainspring.exactly_once(connection, context())
    assert (caught.value.code, caught.value.field) == ("no_transaction", "connection")
    assert "begin immediate" in (caught.value.hint or "")
    connection.execute("begin immediate")
    assert mainspring.exactly_once(connection, context()) is True
    connection.execute("commit")
    connection.execute("begin immediate")
    assert mainspring.exactly_once(connection, context()) is False
    connection.close()


async def test_psycopg_without_a_transaction_is_refused(place: Place) -> None:
    with psycopg.connect(place.postgres, autocommit=True) as connection:
        with pytest.raises(InvalidInput, match="commits each statement"):
            mainspring.exactly_once(connection, context())
        with connection.transaction():
            assert mainspring.exactly_once(connection, context()) is True
        with connection.transaction():
            assert mainspring.exactly_once(connection, context()) is False
    async with await psycopg.AsyncConnection.connect(place.postgres, autocommit=True) as awaited:
        with pytest.raises(InvalidInput, match="commits each statement"):
            await mainspring.exactly_once(awaited, context())
        async with awaited.transaction():
            assert await mainspring.exactly_once(awaited, context()) is False


async def test_a_pipeline_of_psycopg_is_refused(place: Place) -> None:
    """The number of rows is not known in a pipeline, so the first run would look like a repeated one."""
    with psycopg.connect(place.postgres) as connection:
        assert mainspring.exactly_once(connection, context())
        with connection.pipeline(), pytest.raises(InvalidInput) as refusal:
            mainspring.exactly_once(connection, context(job_id="other"))
        assert refusal.value.code == "in_pipeline"
        assert mainspring.exactly_once(connection, context(job_id="other"))


async def test_an_answer_that_nobody_awaits_is_not_taken_for_yes(place: Place) -> None:
    connection = await asyncpg.connect(place.postgres)
    try:
        async with connection.transaction():
            with pytest.raises(TypeError, match="await"):
                assert mainspring.exactly_once(connection, context())
            assert await mainspring.exactly_once(connection, context())
    finally:
        await connection.close()


async def test_asyncpg_without_a_transaction_is_refused(place: Place) -> None:
    connection = await asyncpg.connect(place.postgres)
    with pytest.raises(InvalidInput, match="commits each statement"):
        await mainspring.exactly_once(connection, context())
    async with connection.transaction():
        assert await mainspring.exactly_once(connection, context()) is True
    await connection.close()


@pytest.mark.parametrize("database", ["postgres", "sqlite"])
async def test_sqlalchemy_without_a_transaction_is_refused(place: Place, database: str) -> None:
    url = place.alchemy("psycopg") if database == "postgres" else f"sqlite:///{place.sqlite}"
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection, pytest.raises(InvalidInput, match="commits each statement"):
        mainspring.exactly_once(connection, context())
    engine.dispose()


async def test_what_psycopg_makes_of_rows_does_not_matter(place: Place) -> None:
    with psycopg.connect(place.postgres, row_factory=psycopg.rows.dict_row) as connection:
        assert mainspring.exactly_once(connection, context()) is True
        assert mainspring.exactly_once(connection, context()) is False


async def test_a_run_as_the_client_sees_it_has_the_key_of_its_context(place: Place) -> None:
    view = msgspec.convert(run_sample(job_id="billing", scheduled_for="2026-11-15T09:00:00Z"), RunView)
    with psycopg.connect(place.postgres) as connection:
        assert mainspring.exactly_once(connection, context()) is True
        assert mainspring.exactly_once(connection, view) is False
        assert mainspring.exactly_once(connection, "billing/2026-11-15T09:00:00Z") is False
        rows = connection.execute("select key, run_id, done_at is not null from mainspring_done").fetchall()
    assert rows == [("billing/2026-11-15T09:00:00Z", "run-1", True)]


async def test_no_key_can_be_taken_for_another_one_and_its_step(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "db") as connection:
        assert mainspring.exactly_once(connection, "a", step="b") is True
        assert mainspring.exactly_once(connection, "a#b") is True
        assert mainspring.exactly_once(connection, "a%23b") is True
        assert mainspring.exactly_once(connection, "a", step="b#c") is True
        assert mainspring.exactly_once(connection, "a#b", step="c") is True


@pytest.mark.parametrize(
    ("run", "step", "field"),
    [("", None, "run"), ("k" * 1001, None, "run"), ("k", "", "step"), ("k", "s" * 1001, "step")],
)
async def test_empty_and_endless_keys_are_refused(tmp_path: Path, run: str, step: str | None, field: str) -> None:
    with sqlite3.connect(tmp_path / "db") as connection, pytest.raises(InvalidInput) as caught:
        mainspring.exactly_once(connection, run, step=step)
    assert caught.value.field == field


async def test_what_is_no_connection_or_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"exactly_once does not support builtins\.dict"):
        mainspring.exactly_once({}, "key")  # type: ignore[call-overload]
    with sqlite3.connect(tmp_path / "db") as connection, pytest.raises(TypeError, match="run must be a Context"):
        mainspring.exactly_once(connection, 7)  # type: ignore[call-overload]


async def test_a_moment_needs_its_zone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "db") as connection, pytest.raises(InvalidInput, match="no time zone"):
        mainspring.forget_before(connection, datetime(2026, 1, 1))


def test_no_database_library_is_loaded_that_its_user_has_not_loaded() -> None:
    code = (
        "import sys, sqlite3, mainspring; assert mainspring.exactly_once(sqlite3.connect(':memory:'), 'key') is True; "
        "print(sorted({'psycopg', 'asyncpg', 'sqlalchemy', 'django'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


@pytest.mark.parametrize("database", ["postgresql", "sqlite3"])
async def test_djangos_connection_works_inside_atomic_and_is_refused_outside(place: Place, database: str) -> None:
    """In a separate process, because Django can be set up only once."""
    host, passfile = (place.postgres.partition(f"{part}=")[2].partition("&")[0] for part in ("host", "passfile"))
    name = place.postgres.partition("@/")[2].partition("?")[0] if database == "postgresql" else str(place.sqlite)
    settings: dict[str, Any] = {"ENGINE": f"django.db.backends.{database}", "NAME": name}
    if database == "postgresql":
        settings |= {"USER": ROLE, "HOST": unquote(host), "PORT": "5432", "OPTIONS": {"passfile": unquote(passfile)}}
    code = DJANGO.format(settings=settings)
    answer = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.stdout.split() == ["refused", "True", "True", "False", "1"], answer.stderr


DJANGO = """
from datetime import UTC, datetime, timedelta
from django.conf import settings
settings.configure(DATABASES={{"default": {settings!r}}}, USE_TZ=True)
import django
django.setup()
from django.db import connection, connections, transaction
import mainspring
try:
    mainspring.exactly_once(connection, "key")
except mainspring.InvalidInput as error:
    print("refused" if error.code == "no_transaction" else error)
with transaction.atomic():
    print(mainspring.exactly_once(connection, "key"))
    transaction.set_rollback(True)
with transaction.atomic():
    print(mainspring.exactly_once(connections["default"], "key"))
with transaction.atomic():
    print(mainspring.exactly_once(connection, "key"))
print(mainspring.forget_before(connection, datetime.now(UTC) + timedelta(hours=1)))
"""
