"""The hosts of a URL, and the race between them.

A URL may name several hosts, of which one is the primary. The driver tries them one after another within one timeout:
a machine without power, which refuses nothing, would use all of it. So each host has a head start before the next one,
the host of the last success comes first, and the first primary that answers wins. While a host says nothing, those that
have refused are asked again: a standby may have become the primary meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

import asyncpg

HEAD_START = 0.3  # seconds before the next host is tried as well
READ_WRITE = "read-write"
_DEFAULT_PORT = 5432
_last: dict[str, Host] = {}  # by URL: the primary that answered last


class Host(NamedTuple):
    name: str
    port: int


Open = Callable[[Host], Awaitable[asyncpg.Connection]]


def hosts_of(url: str) -> list[Host]:
    """In the order of the URL. Empty if it names none: the driver then has its own rules."""
    rest, _, query = url.partition("://")[2].partition("?")
    options = dict(parse_qsl(query))
    given = rest.partition("/")[0].rpartition("@")[2] or options.get("host", "")
    ports = (options.get("port") or os.environ.get("PGPORT") or str(_DEFAULT_PORT)).split(",")
    return [_host(text, ports[min(place, len(ports) - 1)]) for place, text in enumerate(given.split(",")) if text]


def _host(text: str, default_port: str) -> Host:
    found = re.fullmatch(r"\[([^\]]*)\](?::(\d+))?", text) or re.fullmatch(r"([^:]*)(?::(\d+))?", text)
    name, port = (text, None) if found is None else (found[1], found[2])
    return Host(unquote(name), int(port or default_port))


def names_target(url: str) -> bool:
    """Whether the URL says which kind of server it wants."""
    return "target_session_attrs" in dict(parse_qsl(url.partition("?")[2])) or "PGTARGETSESSIONATTRS" in os.environ


async def open_first(url: str, hosts: Sequence[Host], open_one: Open) -> asyncpg.Connection:
    """A connection to the first of these hosts that accepts one. Raises the error of the first host if none does."""
    order = sorted(hosts, key=lambda host: host != _last.get(url))
    attempts: dict[asyncio.Task[asyncpg.Connection], Host] = {}
    errors: dict[Host, BaseException] = {}
    waiting = list(order)
    won: asyncpg.Connection | None = None
    try:
        while won is None and (waiting or attempts):
            if waiting:
                host = waiting.pop(0)
                attempts[asyncio.ensure_future(open_one(host))] = host
            done, _ = await asyncio.wait(
                attempts, timeout=HEAD_START if waiting or errors else None, return_when=asyncio.FIRST_COMPLETED
            )
            if not done and not waiting:
                waiting = [host for host in order if errors.pop(host, None) is not None]
            for task in done:
                host = attempts.pop(task)
                if (error := task.exception()) is not None:
                    errors[host] = error
                elif won is None:
                    won, _last[url] = task.result(), host
                else:
                    task.result().terminate()
    finally:
        for task in attempts:
            task.cancel()
            task.add_done_callback(_end_late)
    if won is None:
        raise errors[order[0]]
    return won


def _end_late(task: asyncio.Task[asyncpg.Connection]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().terminate()
