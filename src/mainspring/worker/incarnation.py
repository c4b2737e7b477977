"""One life of a worker: the id under which servers know it, and the secret with which it proves each request."""

from __future__ import annotations

import secrets
from typing import NamedTuple
from uuid import UUID

_SECRET_BYTES = 32


class Incarnation(NamedTuple):
    worker_id: UUID
    secret: str


def new_secret() -> str:
    return secrets.token_hex(_SECRET_BYTES)
