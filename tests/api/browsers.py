"""Browsers that sign in at a server in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx

from mainspring.roles.assembly import Assembly
from tests.api.bookkeeping import problem

BASE = "http://127.0.0.1:8700"
OWN = {"Origin": BASE, "Sec-Fetch-Site": "same-origin"}
COOKIE = "mainspring-8700"
Browser = Callable[..., httpx.AsyncClient]


@asynccontextmanager
async def browsers(assembly: Assembly) -> AsyncIterator[Browser]:
    """Makes browsers, with their own cookies and without a token."""
    async with AsyncExitStack() as stack:

        def another(base: str = BASE, app: Any = assembly.app) -> httpx.AsyncClient:
            client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=base)
            stack.push_async_callback(client.aclose)
            return client

        yield another


def refusal(answer: httpx.Response) -> tuple[int, str, str | None]:
    found = problem(answer)
    return found["status"], found["code"], found.get("field")


async def sign_in(client: httpx.AsyncClient, **body: str) -> dict[str, str]:
    """The headers of changes."""
    own = {**OWN, "Origin": str(client.base_url).rstrip("/")}
    answer = await client.post("/v1/session", json=body, headers=own)
    assert answer.status_code == 201, answer.text
    return {**own, "Mainspring-CSRF": answer.json()["csrf"]}
