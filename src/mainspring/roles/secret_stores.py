"""Stores of secrets outside, as a file of the operator names them: Vault's KV API, or a command.

[vault]
kind = "vault"
address = "https://vault.example.com:8200"
token_file = "/run/secrets/vault-token"

[pass]
kind = "command"
command = ["pass", "show"]
"""

from __future__ import annotations

import asyncio
import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidInput
from mainspring.operations.secrets.external import NotThere, SecretReader, StoreAway

VARIABLE = "MAINSPRING_SECRET_STORES"
DEFAULT_TENANTS = ("default",)
_SECONDS = 10.0
_MOST_BYTES = 256 * 1024
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A store. prefix: what stands before each path; {tenant} is the name of the tenant. cache: how long a value is
    kept in memory. vault: address, token_file, mount, namespace. command: the words; the path and the key follow."""

    kind: str
    tenants: tuple[str, ...] = DEFAULT_TENANTS
    prefix: str = ""
    cache: str | float = "60s"
    address: str | None = None
    token_file: str | None = None
    mount: str = "secret"
    namespace: str | None = None
    command: list[str] | None = None


class _Store:
    def __init__(self, name: str, settings: StoreSettings) -> None:
        self.name = name
        self.tenants = frozenset(settings.tenants)
        self.seconds = parse_duration(settings.cache, f"{name}.cache", least=10.0, most=3600.0)
        if self.tenants != {"default"} and "{tenant}" not in settings.prefix:
            raise InvalidInput(
                "tenants could read each other's secrets",
                field=f"{name}.prefix",
                expected='a prefix such as "{tenant}/"',
            )
        self._prefix = settings.prefix

    def path(self, tenant: str, path: str) -> str:
        return self._prefix.replace("{tenant}", tenant) + path


class VaultStore(_Store):
    """The KV API of Vault, version 2: GET /v1/{mount}/data/{path}."""

    def __init__(self, name: str, settings: StoreSettings) -> None:
        super().__init__(name, settings)
        url = urlsplit(settings.address or "")
        if url.scheme not in ("http", "https") or not url.hostname:
            raise InvalidInput("a vault needs its address", field=f"{name}.address", expected="https://vault:8200")
        if url.scheme == "http" and url.hostname not in _LOOPBACK:
            raise InvalidInput("the values would travel in clear", field=f"{name}.address", expected="https://")
        if not settings.token_file:
            raise InvalidInput("a vault needs a file with its token", field=f"{name}.token_file", expected="a path")
        self._base = f"{(settings.address or '').rstrip('/')}/v1/{quote(settings.mount)}/data/"
        self._token_file, self._namespace = Path(settings.token_file), settings.namespace

    async def read(self, tenant: str, path: str, key: str | None) -> str:
        from mainspring.kernel.light_httpx import httpx  # 36 ms of each start, for those who have a vault

        try:
            headers = {"X-Vault-Token": self._token_file.read_text().strip(), "X-Vault-Request": "true"}
        except OSError as error:
            raise StoreAway(f"the token of the store {self.name!r} cannot be read: {error.strerror}") from None
        if self._namespace is not None:
            headers["X-Vault-Namespace"] = self._namespace
        try:
            async with httpx.AsyncClient(timeout=_SECONDS, trust_env=False) as client, asyncio.timeout(_SECONDS):
                answer = await client.get(self._base + quote(self.path(tenant, path)), headers=headers)
        except (httpx.HTTPError, TimeoutError, ValueError) as error:
            raise StoreAway(f"the store {self.name!r} does not answer: {type(error).__name__}") from None
        if answer.status_code == 404:
            raise NotThere(f"the store {self.name!r} has no {path!r}")
        if answer.status_code != 200 or len(answer.content) > _MOST_BYTES:
            raise StoreAway(f"the store {self.name!r} answers with HTTP {answer.status_code}")
        return self._value(answer.content, path, key)

    def _value(self, content: bytes, path: str, key: str | None) -> str:
        try:
            data = json.loads(content)["data"]["data"]
            found = dict(data)
        except (ValueError, KeyError, TypeError):
            raise StoreAway(f"the store {self.name!r} answers with something else than Vault") from None
        if key is None and len(found) == 1:
            key = next(iter(found))
        if key is None:
            raise NotThere(f"{path!r} in the store {self.name!r} has {len(found)} keys, and the secret names none")
        value = found.get(key)
        if not isinstance(value, str):
            raise NotThere(f"{path!r} in the store {self.name!r} has no text with the key {key!r}")
        return value


class CommandStore(_Store):
    """A command that prints the value. It gets the path, and the key if there is one, as its last arguments."""

    def __init__(self, name: str, settings: StoreSettings) -> None:
        super().__init__(name, settings)
        if not settings.command:
            raise InvalidInput("it needs a command", field=f"{name}.command", expected='["pass", "show"]')
        self._command = settings.command

    async def read(self, tenant: str, path: str, key: str | None) -> str:
        words = [*self._command, self.path(tenant, path), *([] if key is None else [key])]
        try:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            raise StoreAway(f"the command of the store {self.name!r} cannot start: {error.strerror}") from None
        try:
            async with asyncio.timeout(_SECONDS):
                output, _ = await process.communicate()
        except BaseException as error:
            if process.returncode is None:
                process.kill()
            await process.wait()
            if isinstance(error, TimeoutError):
                raise StoreAway(f"the command of the store {self.name!r} did not end in {_SECONDS:g} s") from None
            raise
        if process.returncode != 0:
            raise NotThere(f"the command of the store {self.name!r} ended with exit code {process.returncode}")
        try:
            return output[:_MOST_BYTES].decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise NotThere(f"the command of the store {self.name!r} printed something else than UTF-8") from None


_KINDS: dict[str, type[VaultStore] | type[CommandStore]] = {"vault": VaultStore, "command": CommandStore}


def read_secret_stores(environ: Mapping[str, str] = os.environ) -> dict[str, SecretReader]:
    """The stores that the file names. Raises InvalidInput that names the field."""
    if not (path := environ.get(VARIABLE)):
        return {}
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}", field=VARIABLE) from None
    except ValueError as error:
        raise InvalidInput(f"{path} is not TOML: {error}", field=VARIABLE) from None
    found: dict[str, SecretReader] = {}
    for name, table in tables.items():
        try:
            settings = msgspec.convert(table, StoreSettings)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"the store {name!r} is wrong: {error}", field=VARIABLE) from None
        if (kind := _KINDS.get(settings.kind)) is None:
            raise InvalidInput(f"there is no kind {settings.kind!r}", field=f"{name}.kind", expected="vault or command")
        found[name] = kind(name, settings)
    return found
