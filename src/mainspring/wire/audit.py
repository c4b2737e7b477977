"""Messages about the audit."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from mainspring.wire.states import words

SourceWord = Annotated[str, words("AuditSource", "api", "system")]
# The kinds of things that entries tell of.
AUDITED_KINDS = (
    "backfill", "breaker", "calendar", "channel", "dead_letters", "job", "limit", "master_key", "notification",
    "operation", "queue", "rule", "run", "secret", "session", "sink", "source", "tenant", "token", "user",
    "view", "worker",
)  # fmt: skip
OF_THE_SYSTEM = ("breakers.open", "workers.lost")  # operations that no request asks for


class AuditEntry(msgspec.Struct):
    """A change. by: the name of the token, or `mainspring` for what the system decided. source: a request (api), or the
    system itself. address, client: where the request came from, and what its program calls itself. kind and id: what
    was changed. before, after: the members that differ. Payloads and secrets are digests, which are equal if the values
    are. Of a large value there is a digest, too."""

    entry_id: str
    at: datetime
    by: str
    source: SourceWord
    operation: str
    kind: str
    id: str
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    token_id: str | None = None
    session_id: str | None = None
    role: str | None = None
    address: str | None = None
    client: str | None = None
    all_tenants: bool = False


class AuditList(msgspec.Struct):
    entries: list[AuditEntry]
    next: str | None = None


class AuditRecord(msgspec.Struct):
    """An entry as its hash covers it: `before` and `after` are texts."""

    entry_id: str
    at: datetime
    tenant_id: int
    source: str
    token_id: str | None
    session_id: str | None
    actor: str
    role: str | None
    address: str | None
    client: str | None
    operation: str
    kind: str
    object_id: str
    before: str | None
    after: str | None


class ChainLink(msgspec.Struct):
    """A link of the chain. hash: the SHA-256 of the hash before it, of `seq` and of `entry_hash`, as hexadecimal
    digits. entry: null if it is missing; dropped: retention has dropped it."""

    seq: int
    entry_id: str
    entry_hash: str
    hash: str
    entry: AuditRecord | None = None
    dropped: bool = False


class ChainEnd(msgspec.Struct):
    seq: int
    hash: str


class AuditChain(msgspec.Struct):
    """Links of the chain, in their order. anchor: the last link that retention has dropped. head: the newest link.
    unlinked: how many entries have no link yet, at most 1,000, and since when. next_seq: where the next page begins."""

    links: list[ChainLink]
    head: ChainEnd | None = None
    anchor: ChainEnd | None = None
    unlinked: int = 0
    unlinked_since: datetime | None = None
    next_seq: int | None = None
