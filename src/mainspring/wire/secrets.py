"""Messages about secrets. No message to a client has a value; only the order of a run has, for its worker.

This module imports nothing of the product: the calls of kinds of task use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

REFERENCE = "$secret"
SHORTEST_VALUE = 8  # bytes: anything shorter would be found in ordinary output
LONGEST_VALUE = 32 * 1024
MOST_IN_A_JOB = 32

SecretName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="The name of a secret: letters, digits, and . _ -",
        extra_json_schema={"examples": ["db-password"]},
    ),
]


class SecretRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"name": REFERENCE}):
    """{"$secret": "db-password"}: stands for the value of a secret, which only the worker gets."""

    name: SecretName


Variables = dict[str, str | SecretRef]


class RunSecrets(msgspec.Struct, frozen=True):
    """The values of the secrets that a run names. The text of this object has none of them."""

    values: dict[str, str]

    def __repr__(self) -> str:
        return f"RunSecrets({', '.join(self.values)})"


class ExternalSecret(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a value is that Mainspring does not store. store: a name that the operator of the servers has given. key:
    which value of the path, if it has several."""

    store: Annotated[str, Meta(min_length=1, max_length=200)]
    path: Annotated[str, Meta(min_length=1, max_length=500)]
    key: Annotated[str, Meta(min_length=1, max_length=500)] | None = None


class SecretRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `PUT /v1/secrets/{name}`. queues, tasks: only jobs of these may name it; left out: all. external:
    the value is in a store outside. Without a value and without it the secret keeps what it has."""

    value: str | None = None
    external: ExternalSecret | None = None
    queues: Annotated[list[str], Meta(max_length=100)] | None = None
    tasks: Annotated[list[str], Meta(max_length=100)] | None = None

    def __repr__(self) -> str:
        return "SecretRequest(...)"


class SecretView(msgspec.Struct, omit_defaults=True):
    """A secret without its value, which no answer has. version: rises with each new value. queues, tasks: left out if
    all jobs may name it. used_by: jobs and workflows that name it, of one secret only; more_users: there are more.
    external: where the value is, if it is in a store outside."""

    name: str
    version: int
    created_at: datetime
    changed_at: datetime
    changed_by: str
    queues: list[str] = []
    tasks: list[str] = []
    external: ExternalSecret | None = None
    used_by: list[str] = []
    more_users: bool = False


class SecretList(msgspec.Struct, omit_defaults=True):
    """enabled: this server has a master key. next: the cursor of the next page."""

    secrets: list[SecretView]
    enabled: bool
    next: str | None = None


class RewrappedKeys(msgspec.Struct):
    """key: the id of the master key that wraps the data keys now. rewrapped: how many were wrapped with another before.
    left: how many are wrapped with a key that this server does not have."""

    key: str
    rewrapped: int
    left: int


def references_in(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """The places of decoded JSON that hold a reference, with what they hold."""
    left = [(value, where)]
    while left:
        value, where = left.pop()
        if isinstance(value, list):
            left += [(item, f"{where}[{place}]") for place, item in enumerate(value)]
        elif isinstance(value, dict):
            if REFERENCE in value:
                yield where, value
            else:
                left += [(item, f"{where}.{name}") for name, item in value.items()]


def is_reference(value: Any) -> bool:
    """Whether a value of `env` or `headers` stands for a secret."""
    return isinstance(value, SecretRef) or (isinstance(value, dict) and value.keys() == {REFERENCE})
