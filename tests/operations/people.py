"""People who are invited, and sign in with passwords."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import httpx

from mainspring.operations.people import passwords
from tests.api.browsers import OWN

PASSWORD = "seventeen green umbrellas"
OTHER = "a bicycle for every fish"
ADA = {"mail": "Ada@Example.com", "name": "Ada Lovelace"}


@contextmanager
def cheap_hashes() -> Iterator[None]:
    """Hashes of 64 KiB instead of 64 MiB."""
    with mock.patch.object(passwords, "_KIBIBYTES", 64):
        yield


async def invited(api: httpx.AsyncClient, role: str = "operator", **fields: Any) -> dict[str, Any]:
    answer = await api.post("/v1/users", json={**ADA, "role": role, **fields})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def accepts(browser: httpx.AsyncClient, code: str, password: str = PASSWORD) -> dict[str, str]:
    """The headers of changes."""
    answer = await browser.post("/v1/user/accept", json={"code": code, "password": password}, headers=OWN)
    assert answer.status_code == 201, answer.text
    return {**OWN, "Mainspring-CSRF": answer.json()["csrf"]}


async def member(api: httpx.AsyncClient, browser: httpx.AsyncClient, role: str = "operator", **fields: Any) -> Any:
    """Ada, who has accepted, in this browser. Returns her id and the headers of changes."""
    made = await invited(api, role, **fields)
    return made["user_id"], await accepts(browser, made["code"])


def by_password(password: str = PASSWORD, **fields: Any) -> dict[str, Any]:
    return {"mail": "ada@example.com", "password": password, **fields}
