"""Servers find out whether they store logs in the same place, by marks in their folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import asyncpg
import httpx
import pytest

from mainspring.store import log_places
from mainspring.store.log_files import LogFiles, open_log_files
from mainspring.store.log_stores import LogStore
from mainspring.store.log_table import LogTable
from mainspring.store.pool import Store
from mainspring.upkeep.log_place_checker import LogPlaceChecker

pytestmark = pytest.mark.anyio


async def started(store: Store, *written: LogStore) -> list[LogPlaceChecker]:
    """Servers that have all seen each other."""
    servers = [LogPlaceChecker(store, each, f"server-{number}") for number, each in enumerate(written)]
    for _ in range(2):
        for server in servers:
            await server.run_once()
    return servers


async def apart(server: LogPlaceChecker) -> list[str]:
    return await server.run_once()


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in (("REGION", "eu-central-1"), ("ACCESS_KEY_ID", "someone"), ("SECRET_ACCESS_KEY", "something")):
        monkeypatch.setenv(f"AWS_{name}", value)
    yield


async def test_servers_with_one_folder_are_together_whatever_its_path_is(store: Store, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "logs")
    (tmp_path / "logs").mkdir()
    servers = await started(store, open_log_files(tmp_path / "logs"), open_log_files(tmp_path / "link"))
    assert [await apart(server) for server in servers] == [[], []]


async def test_a_server_with_another_folder_is_named_by_all_and_by_itself(
    store: Store, tmp_path: Path, api: httpx.AsyncClient
) -> None:
    places = [open_log_files(tmp_path / name) for name in ("one", "one", "other")]
    servers = await started(store, *places)
    assert [await apart(server) for server in servers] == [["server-2"], ["server-2"], ["server-0", "server-1"]]
    problems = (await api.get("/v1/insights/overview")).json()["problems"]
    said = [problem for problem in problems if "store logs in different places" in problem]
    assert [problem.partition(" store")[0] for problem in said] == [
        "the servers server-0 and server-2", "the servers server-1 and server-2"
    ]  # fmt: skip
    assert str(tmp_path) not in "".join(said), "clients do not learn where logs are stored"


async def test_the_same_path_on_two_machines_is_not_the_same_folder(store: Store, tmp_path: Path) -> None:
    """The second machine has mounted nothing there."""
    (here,) = await started(store, open_log_files(tmp_path / "logs"))
    (tmp_path / "logs").rename(tmp_path / "of the first machine")
    there = LogPlaceChecker(store, open_log_files(tmp_path / "logs"), "there")
    assert there.place.place == here.place.place
    assert await apart(there) == ["server-0"]


async def test_postgresql_is_one_place_and_a_folder_is_another(store: Store, tmp_path: Path) -> None:
    servers = await started(store, LogTable(store), LogTable(store), open_log_files(tmp_path))
    assert [await apart(server) for server in servers] == [["server-2"], ["server-2"], ["server-0", "server-1"]]


async def test_object_stores_are_compared_by_their_address(store: Store, credentials: None) -> None:
    places = [open_log_files(f"s3://bucket/{prefix}") for prefix in ("logs", "logs", "others")]
    servers = await started(store, *places)
    assert [await apart(server) for server in servers] == [["server-2"], ["server-2"], ["server-0", "server-1"]]


async def test_a_server_that_has_stopped_is_looked_for_no_longer(
    store: Store, tmp_path: Path, connection: asyncpg.Connection
) -> None:
    one, other = await started(store, open_log_files(tmp_path / "one"), open_log_files(tmp_path / "other"))
    assert await log_places.apart(connection) == [("server-0", "server-1")]
    await other.close()
    assert (await apart(one), await log_places.apart(connection)) == ([], [])
    assert not (tmp_path / "other" / ".servers").exists()


async def test_a_server_that_was_killed_is_forgotten_and_its_mark_is_removed(
    store: Store, tmp_path: Path, connection: asyncpg.Connection
) -> None:
    files = open_log_files(tmp_path / "one")
    killed, _ = await started(store, files, open_log_files(tmp_path / "other"))
    await connection.execute("update mainspring.log_places set seen_at = seen_at - interval '31 seconds'")
    (later,) = await started(store, files)
    assert await apart(later) == []
    await connection.execute("update mainspring.log_places set seen_at = seen_at - interval '2 days'")
    await later.close()
    assert await connection.fetchval("select count(*) from mainspring.log_places") == 0
    (last,) = await started(store, files)
    marks = {path.name for path in (tmp_path / "one" / ".servers").iterdir()}
    assert marks == {str(last.place.server_id)} and str(killed.place.server_id) not in marks


async def test_a_mark_that_was_removed_is_written_again(store: Store, tmp_path: Path) -> None:
    files: LogFiles = open_log_files(tmp_path)
    one, other = await started(store, files, files)
    (tmp_path / ".servers" / str(one.place.server_id)).unlink()
    assert await apart(other) == ["server-0"]
    await one.run_once()
    assert await apart(other) == []


async def test_marks_are_not_output(store: Store, tmp_path: Path) -> None:
    files = open_log_files(tmp_path)
    await started(store, files)
    assert await files.delete("1") == 0
    assert await files.objects(".servers") == []
