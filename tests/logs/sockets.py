"""The server's app on a real socket, for streaming responses, with its log watch."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import uvicorn

from mainspring.kernel.lifecycle import Loops
from mainspring.roles.assembly import Assembly
from tests.certificates import NOBODY
from tests.conftest import TOKEN


@asynccontextmanager
async def on_a_socket(
    assembly: Assembly, token: str = TOKEN, *, watching: bool = True
) -> AsyncIterator[httpx.AsyncClient]:
    config = uvicorn.Config(assembly.app, http="httptools", lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    watch, loops = assembly.services.logs.watch, Loops()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        if watching:
            loops.start(watch)
        try:
            async with httpx.AsyncClient(
                base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60, verify=NOBODY
            ) as client:
                while not server.started:
                    await asyncio.sleep(0.01)
                yield client
        finally:
            assembly.release_waiters()
            server.should_exit = True
            await serving
            await loops.stop()
