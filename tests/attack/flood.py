"""Sends one request many times at once. A process of its own, so that nothing else of a drill makes it slow.

`python -m tests.attack.flood PORT` reads orders from stdin, one JSON object in each line, and answers each with a line.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec

_PIECE = 256 * 1024
_PATIENCE = 120.0


class Order(msgspec.Struct):
    """body: the file with it; "" for none. tokens: the requests have them in turn; "" for none."""

    method: str
    path: str
    tokens: list[str]
    body: str
    times: int


class Answers(msgspec.Struct):
    """statuses: how often each came; 0: the server hung up, -1: no answer."""

    statuses: dict[int, int]
    seconds: float


async def flood(port: int, order: Order) -> Answers:
    body = Path(order.body).read_bytes() if order.body else b""
    began = time.monotonic()
    found = await asyncio.gather(
        *(_one(port, order, order.tokens[number % len(order.tokens)], body) for number in range(order.times))
    )
    return Answers(dict(Counter(found)), time.monotonic() - began)


async def _one(port: int, order: Order, token: str, body: bytes) -> int:
    head = f"{order.method} {order.path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    if token:
        head += f"Authorization: Bearer {token}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)

    async def send() -> None:
        try:
            writer.write(head.encode())
            for start in range(0, len(body), _PIECE):
                writer.write(memoryview(body)[start : start + _PIECE])
                await writer.drain()
        except ConnectionError:
            pass  # it is refused already

    sending = asyncio.create_task(send())
    try:
        async with asyncio.timeout(_PATIENCE):
            line = await reader.readline()
            while await reader.read(2**20):
                pass
        return int(line.split()[1]) if line else 0
    except ConnectionError:
        return 0
    except TimeoutError:
        return -1
    finally:
        sending.cancel()
        writer.transport.abort()


async def _main(port: int) -> None:
    while line := await asyncio.to_thread(sys.stdin.readline):
        answers = await flood(port, msgspec.json.decode(line, type=Order))
        sys.stdout.write(msgspec.json.encode(answers).decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
