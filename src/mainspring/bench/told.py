"""Told: runs that fail, with a rule that tells of them and without one, in turn. How many run per second, and how many
messages 10,000 failures within a minute become."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median

import httpx
import uvloop
from rich.progress import Progress

from mainspring.bench.arena import Arena, fresh_postgres, product, submit_batch
from mainspring.bench.figures import progress, show
from mainspring.bench.recorded import until_recorded

JOBS = 10_000
ROUNDS = 5
_BATCH = 1000
_MINUTE = 60.0
_JOB = '{"task":"bench.fail","retry":{"max_attempts":1},"payload":{"number":%d}}'
_RULE = {"on": ["failure", "every_failure", "recovered"], "to": ["bench"], "group_wait": "1s"}


def main(jobs: int | None, rounds: int | None, as_json: bool) -> int:
    show("told", uvloop.run(run(jobs or JOBS, rounds or ROUNDS)), as_json)
    return 0


async def run(jobs: int, rounds: int, wait: float = _MINUTE) -> dict[str, object]:
    """The rounds alternate, because a machine has good and bad minutes. Each has a new database."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    messages = within = 0
    with progress() as bar:
        for number in range(rounds):
            for told in (True, False) if number % 2 else (False, True):
                seconds, found = await _round(jobs, bar, told=told, wait=wait if number == 0 else 0.0)
                rates[told].append(jobs / seconds)
                if told and number == 0:
                    messages, within = found, round(seconds)
    ratios = [on / off for on, off in zip(rates[True], rates[False], strict=True)]
    return {
        "failures": jobs,
        "rounds": rounds,
        "failed_within_s": within,
        "messages_in_a_minute": messages,
        "runs_per_s_with_rules": round(median(rates[True])),
        "runs_per_s_without": round(median(rates[False])),
        "ratio": round(median(ratios), 3),
        "ratios": ", ".join(f"{ratio:.3f}" for ratio in ratios),
    }


async def _round(jobs: int, bar: Progress, *, told: bool, wait: float) -> tuple[float, int]:
    """The seconds until all have failed, and how many messages arrived until `wait` seconds after the first failure."""
    allowed = {"MAINSPRING_NOTIFY_ALLOW": "127.0.0.1"}
    async with (
        _receiver() as (url, received),
        fresh_postgres() as (postgres, folder),
        product(postgres, folder, variables=allowed) as arena,
    ):
        if told:
            await _tell(arena, url)
        began = time.perf_counter()
        seconds = await _fail(arena, jobs, bar)
        if told and wait:
            await asyncio.sleep(max(0.0, began + wait - time.perf_counter()))
        return seconds, len(received)


async def _tell(arena: Arena, url: str) -> None:
    async with httpx.AsyncClient(base_url=arena.server_url, headers=arena.headers, timeout=60) as client:
        channel = {"kind": "webhook", "url": url, "secret": "of-a-benchmark"}
        for path, body in (("channels/bench", channel), ("rules/all-failures", _RULE)):
            (await client.put(f"/v1/{path}", json=body)).raise_for_status()


async def _fail(arena: Arena, jobs: int, bar: Progress) -> float:
    bodies = [
        f'{{"jobs":[{",".join(_JOB % number for number in range(first, min(first + _BATCH, jobs)))}]}}'.encode()
        for first in range(0, jobs, _BATCH)
    ]
    going = bar.add_task("failures", total=jobs)
    connection = await arena.connect()
    try:
        async with httpx.AsyncClient(headers=arena.headers, timeout=60) as client:
            began = time.perf_counter()
            for body in bodies:
                await submit_batch(client, arena.server_url, body)
            await until_recorded(connection, bar, going)
            seconds = time.perf_counter() - began
        failed = await connection.fetchval("select count(*) from mainspring.dead_letters")
    finally:
        await connection.close()
    if failed != jobs:
        raise AssertionError(f"{failed} of {jobs} runs have failed")
    return seconds


@asynccontextmanager
async def _receiver() -> AsyncIterator[tuple[str, list[bytes]]]:
    """A webhook of this machine, and the ids that it has received."""
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
                await reader.readexactly(int(fields[b"content-length"]))
                if fields[b"webhook-id"] not in received:
                    received.append(fields[b"webhook-id"])
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/told", received
    finally:
        server.close()
