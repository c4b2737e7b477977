"""Calls for secrets. None returns a value."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.sdk.client.calls.common import query_of
from mainspring.sdk.client.core import Call, encode, json_of, segment
from mainspring.wire.secrets import ExternalSecret, RewrappedKeys, SecretList, SecretView

_secret = json_of(SecretView)
_secret_list = json_of(SecretList)
_rewrapped = json_of(RewrappedKeys)


def secrets(*, limit: int | None = None, cursor: str | None = None) -> Call[SecretList]:
    """One page of secrets, by name, without their values."""
    return Call("GET", "/v1/secrets", _secret_list, params=query_of({"limit": limit, "cursor": cursor}))


def secret(name: str) -> Call[SecretView]:
    """The secret `name`, without its value, and the jobs and workflows that name it."""
    return Call("GET", _path(name), _secret)


def set_secret(
    name: str,
    value: str | None = None,
    *,
    queues: Sequence[str] | None = None,
    tasks: Sequence[str] | None = None,
    external: ExternalSecret | None = None,
) -> Call[SecretView]:
    """Store a secret, or a new version of it. No call returns the value. With `queues` or `tasks` only jobs of
    these may name it. `external`: the value is in a store outside. Without both it keeps what it has."""
    given = {"value": value, "queues": queues, "tasks": tasks, "external": external}
    return Call("PUT", _path(name), _secret, body=encode({key: one for key, one in given.items() if one is not None}))


def delete_secret(name: str) -> Call[SecretView]:
    """Delete a secret. Attempts that need it fail from now on. Not repeated after a lost response."""
    return Call("DELETE", _path(name), _secret, repeatable=False)


def rotate_secret_key() -> Call[RewrappedKeys]:
    """Encrypt the data key of the tenant with the newest master key of the servers. An instance administrator does that
    for all tenants."""
    return Call("POST", "/v1/secrets:rotateKey", _rewrapped)


def _path(name: str) -> str:
    return f"/v1/secrets/{segment(name)}"
