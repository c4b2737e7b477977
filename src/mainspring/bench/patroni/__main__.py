"""`make cluster`: three nodes of Patroni, two servers and a worker, until Ctrl-C. Everything is removed at the end."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from contextlib import suppress
from pathlib import Path

import uvloop

from mainspring.bench.arena import Arena, arena_at
from mainspring.bench.patroni.nodes import PatroniNodes, patroni_nodes
from mainspring.domain.errors import MainspringError
from mainspring.kernel.config import TOKEN_FILE_NAME


def _text(nodes: PatroniNodes, arena: Arena) -> str:
    token = arena.folder / "data" / TOKEN_FILE_NAME
    lines = [f"server  {server.url}" for server in arena.servers]
    for node in nodes.nodes.values():
        pid = node.postgres_pid()
        lines.append(f"node    {node.name:5}  PostgreSQL {node.address} (pid {pid}), Patroni {node.rest_url}/cluster")
    lines += [
        "",
        f"export MAINSPRING_URL={arena.servers[0].url} MAINSPRING_TOKEN_FILE={token}",
        f"mainspring submit bench.noop; mainspring doctor --database-url-file {nodes.folder / 'database-url'}",
        "kill -9 the pid of the primary to see a failover. Ctrl-C stops everything.",
    ]
    return "\n".join(lines)


def _keep_url(nodes: PatroniNodes) -> None:
    file: Path = nodes.folder / "database-url"
    file.touch(mode=0o600)
    file.write_text(nodes.url, encoding="utf-8")


async def run(seconds: float | None) -> None:
    asked, running = asyncio.Event(), asyncio.Event()
    main = asyncio.current_task()
    assert main is not None

    def ask() -> None:
        asked.set()
        if not running.is_set():
            main.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ask)
    try:
        async with patroni_nodes() as nodes, arena_at(nodes.url, nodes.folder / "bench") as arena:
            _keep_url(nodes)
            for _ in range(2):
                await arena.start_server()
            await arena.start_worker(arena.servers[0].url)
            running.set()
            sys.stdout.write(f"{_text(nodes, arena)}\n")
            sys.stdout.flush()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await asked.wait()
            sys.stdout.write("stopping\n")
    except asyncio.CancelledError:
        if not asked.is_set():
            raise


def main() -> int:
    parser = argparse.ArgumentParser(prog="make cluster", description=__doc__)
    parser.add_argument("--seconds", type=float, default=None, help="stop after this time (default: at Ctrl-C)")
    options = parser.parse_args()
    try:
        uvloop.run(run(options.seconds))
    except MainspringError as error:
        sys.stderr.write(f"error: {error}\n{error.hint or ''}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
