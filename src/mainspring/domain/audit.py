"""What an entry of the audit says of a change: the members that differ, with digests in place of payloads and secrets,
within bounds. And the chain of hashes over entries."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from mainspring.domain.secret_names import masked_pairs

LEAST_DAYS = 30  # the audit is kept for so long at least
FIRST_HASH = bytes(32)  # of the link before the first one

_MOST_BYTES = 16_384  # of `before`, and of `after`
_LONG_TEXT = 1000  # characters; of a longer text the beginning is kept
_LONG_MEMBER = 1024  # bytes; longer members are left out where the whole is too long
_BEGINNING = 200
_DEEPEST = 20
_PAYLOADS = frozenset({"payload", "body", "parameters", "args", "kwargs"})
_PAIRS = frozenset({"env", "headers"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_encode = msgspec.json.Encoder(order="sorted").encode


class StoredEntry(msgspec.Struct, frozen=True):
    """What the hash of an entry covers. `before` and `after` are JSON texts."""

    entry_id: UUID
    at: datetime
    tenant_id: int
    source: str
    token_id: UUID | None
    session_id: UUID | None
    actor: str
    role: str | None
    address: str | None
    client: str | None
    operation: str
    kind: str
    object_id: str
    before: str | None
    after: str | None


def entry_hash(entry: StoredEntry) -> bytes:
    values = [getattr(entry, name) for name in StoredEntry.__struct_fields__]
    values[1] = (entry.at - _EPOCH) // _MICROSECOND
    return hashlib.sha256(msgspec.json.encode(values)).digest()


def link_hash(previous: bytes, seq: int, entry: bytes) -> bytes:
    """The hash of the link `seq` to an entry with this hash."""
    return hashlib.sha256(previous + seq.to_bytes(8, "big") + entry).digest()


def differing(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The members whose values differ, before and after. If one side is None, all members of the other."""
    if before is None or after is None:
        return None if before is None else dict(before), None if after is None else dict(after)
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return (
        {name: before[name] for name in names if name in before},
        {name: after[name] for name in names if name in after},
    )


class AuditRedactor:
    """Makes the texts `before` and `after`. `key`: digests are made with it, so that a reader of an entry cannot try
    out which short secret has this digest."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def text(self, members: Mapping[str, Any] | None) -> str | None:
        """The members as JSON, without payloads and secrets, of at most 16 KiB."""
        if members is None:
            return None
        kept = {name: self._member(name, value, 0) for name, value in members.items()}
        text = _encode(kept)
        if len(text) > _MOST_BYTES:
            kept = {
                name: value if len(_encode(value)) <= _LONG_MEMBER else self._digest(value)
                for name, value in kept.items()
            }
            text = _encode(kept)
        return (text if len(text) <= _MOST_BYTES else _encode(self._digest(kept))).decode()

    def _member(self, name: str, value: Any, depth: int) -> Any:
        value = _plain(value)
        if value is None or value in ({}, []):
            return value
        if name in _PAYLOADS:
            return self._digest(value)
        if name in _PAIRS and isinstance(value, Mapping):
            return self._pairs(value)
        return self._value(value, depth)

    def _value(self, value: Any, depth: int) -> Any:
        value = _plain(value)
        if depth > _DEEPEST:
            return self._digest(value)
        if isinstance(value, Mapping):
            return {str(name): self._member(str(name), one, depth + 1) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self._value(one, depth + 1) for one in value]
        if isinstance(value, msgspec.Raw):
            return self._digest(value)
        if not isinstance(value, str):
            return value
        if masked_pairs({"": value})[""] != value:  # an address with a password
            return self._secret(value)
        return value if len(value) <= _LONG_TEXT else {"begins": value[:_BEGINNING], **self._digest(value)}

    def _pairs(self, pairs: Mapping[Any, Any]) -> dict[str, Any]:
        shown = masked_pairs({str(name): value for name, value in pairs.items()})
        return {
            str(name): self._value(value, 1) if shown[str(name)] == value else self._secret(value)
            for name, value in pairs.items()
        }

    def _secret(self, value: Any) -> dict[str, Any]:
        """A digest that does not tell how long the secret is."""
        return {"digest": self._digest(value)["digest"]}

    def _digest(self, value: Any) -> dict[str, Any]:
        """Equal values have equal digests."""
        text = bytes(value) if isinstance(value, msgspec.Raw) else _encoded(value)
        return {"digest": hmac.new(self._key, text, hashlib.sha256).hexdigest()[:32], "bytes": len(text)}


def _plain(value: Any) -> Any:
    """The members of a struct have names too."""
    return msgspec.to_builtins(value, builtin_types=(msgspec.Raw,)) if isinstance(value, msgspec.Struct) else value


def _encoded(value: Any) -> bytes:
    try:
        return _encode(value)
    except RecursionError:
        return repr(type(value)).encode()


class CheckedLink(msgspec.Struct, frozen=True):
    """A link to be verified. entry: what is stored; None if it is missing. dropped: retention has dropped it."""

    seq: int
    entry_hash: bytes
    hash: bytes
    entry: StoredEntry | None
    dropped: bool


class ChainCheck:
    """Verifies a chain link by link. `seq` and `hash`: of the link before the first one, which retention has dropped.
    `noted`: a link that was noted before, with its hash. `problems` has what does not fit."""

    def __init__(self, seq: int = 0, hash: bytes = FIRST_HASH, noted: tuple[int, bytes] | None = None) -> None:
        self.seq = seq
        self.hash = hash
        self.problems: list[str] = []
        self._noted = noted
        self._compare(noted)

    def take(self, link: CheckedLink) -> None:
        if link.seq != self.seq + 1:
            self.problems.append(_missing(self.seq + 1, link.seq - 1))
        elif link_hash(self.hash, link.seq, link.entry_hash) != link.hash:
            self.problems.append(f"link {link.seq} does not follow from link {link.seq - 1}")
        if link.entry is not None and entry_hash(link.entry) != link.entry_hash:
            self.problems.append(f"link {link.seq}: the entry {link.entry.entry_id} was changed")
        elif link.entry is None and not link.dropped:
            self.problems.append(f"link {link.seq}: the entry is missing")
        self.seq, self.hash = link.seq, link.hash
        self._compare(self._noted)

    def end(self, head: tuple[int, bytes] | None) -> None:
        """After the last link: it is the head of the chain, and not before the one that was noted."""
        self._compare(head)
        last = max((one[0] for one in (head, self._noted) if one is not None), default=0)
        if last > self.seq:
            self.problems.append(_missing(self.seq + 1, last))

    def _compare(self, known: tuple[int, bytes] | None) -> None:
        if known is not None and known[0] == self.seq and known[1] != self.hash:
            self.problems.append(f"link {self.seq} is not the one that was noted")


def _missing(first: int, last: int) -> str:
    return f"link {first} is missing" if first >= last else f"links {first} to {last} are missing"
