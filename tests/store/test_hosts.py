"""Several hosts in a URL: the primary that answers first is used, whatever the others do."""

from __future__ import annotations

import asyncio
from asyncio.streams import StreamReader, StreamWriter
from collections.abc import AsyncIterator

import asyncpg
import pytest

from mainspring.store import hosts
from mainspring.store.hosts import Host, hosts_of, names_target, open_first
from mainspring.store.pool import connect
from tests.eventually import PATIENCE

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "url, found",
    [
        ("postgresql://r@a,b:5433/d", [("a", 5432), ("b", 5433)]),
        ("postgresql://r:p%40@[::1]:7,[fe80::1]/d", [("::1", 7), ("fe80::1", 5432)]),
        ("postgresql://r@/d?host=a,b&port=1,2", [("a", 1), ("b", 2)]),
        ("postgresql://r@/d?host=a,b&port=9", [("a", 9), ("b", 9)]),
        ("postgresql://r@/d?host=/run/postgresql", [("/run/postgresql", 5432)]),
        ("postgresql:///d", []),
    ],
)
def test_hosts_are_read_as_the_driver_reads_them(url: str, found: list[tuple[str, int]]) -> None:
    assert hosts_of(url) == found


def test_a_url_may_say_what_it_wants() -> None:
    assert names_target("postgresql://a,b/d?target_session_attrs=any") and not names_target("postgresql://a,b/d")


@pytest.fixture
async def silent() -> AsyncIterator[int]:
    """The port of a host that accepts connections and never answers."""

    async def say_nothing(reader: StreamReader, _: StreamWriter) -> None:
        await reader.read()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def test_a_host_that_does_not_answer_does_not_use_up_the_time_of_the_others(silent: int) -> None:
    opened = object()

    async def open_one(host: Host) -> asyncpg.Connection:
        if host.name == "silent":
            await asyncio.sleep(60)
        return opened

    names = [Host("silent", 1), Host("other", 1)]
    async with asyncio.timeout(PATIENCE):
        assert await open_first("a url", names, open_one) is opened
    assert hosts._last["a url"] == names[1]  # it is asked first from now on


async def test_a_standby_is_asked_again_while_another_host_says_nothing() -> None:
    """The machine of the primary hangs, and the standby becomes the primary before the time of the try is over."""
    opened, asked = object(), []

    async def open_one(host: Host) -> asyncpg.Connection:
        if host.name == "silent":
            await asyncio.sleep(60)
        asked.append(host)
        if len(asked) < 3:
            raise asyncpg.TargetServerAttributeNotMatched("it is a standby")
        return opened

    async with asyncio.timeout(PATIENCE):
        assert await open_first("another url", [Host("silent", 1), Host("standby", 1)], open_one) is opened
    assert len(asked) == 3


async def test_if_none_answers_the_error_is_that_of_the_first(silent: int) -> None:
    url = f"postgresql://nobody@127.0.0.1:1,127.0.0.1:{silent}/nothing?sslmode=disable"
    with pytest.raises(OSError):
        await connect(url, application="test", timeout=1.0)
