"""What the worker and its warm children say to each other: MessagePack structs, each behind its length."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from mainspring.wire.exchange import OutcomeStatus
from mainspring.wire.execution import Cause, ResourceLimits

T = TypeVar("T")
_LENGTH = 4
_LONGEST = 8 * 1024 * 1024  # a payload, an environment and what belongs to them are far less


class Hello(msgspec.Struct, tag="hello", array_like=True):
    """The worker's first words: the server that the application's tasks submit to."""

    server: str
    token: str


class Begin(msgspec.Struct, tag="begin", array_like=True):
    """Run this, in `folder`, which the child makes and keeps empty between runs."""

    run_id: str
    job_id: str
    attempt: int
    scheduled_for: datetime
    task: str
    name: str | None
    payload: bytes
    folder: str
    env: dict[str, str] | None
    limits: ResourceLimits | None


class Halt(msgspec.Struct, tag="halt", array_like=True):
    """End this run. It may have ended already: then this is about nothing."""

    run_id: str


class Ready(msgspec.Struct, tag="ready", array_like=True):
    """The application is loaded, and the interpreter has this much memory in use."""

    memory: int


class Unready(msgspec.Struct, tag="unready", array_like=True):
    """The application cannot be loaded; the child leaves."""

    error: str


class Progress(msgspec.Struct, tag="progress", array_like=True):
    fraction: float | None
    message: str | None


class Ended(msgspec.Struct, tag="ended", array_like=True):
    """The run is over, and all that it printed has been written. `unfit` says why the child must not run another one:
    processes or threads are left, or it has run enough."""

    status: OutcomeStatus
    error: str | None
    retry: bool
    retry_after: float | None
    cause: Cause | None
    result: bytes | None
    unfit: str | None


Order = Hello | Begin | Halt
Word = Ready | Unready | Progress | Ended

_encode = msgspec.msgpack.Encoder().encode
_orders = msgspec.msgpack.Decoder(Order)
_words = msgspec.msgpack.Decoder(Word)


def framed(message: Order | Word) -> bytes:
    body = _encode(message)
    return len(body).to_bytes(_LENGTH, "big") + body


class InvalidFrame(ValueError):
    """What came is no message of ours."""


class Frames(Generic[T]):
    """Bytes in, messages out."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[T]) -> None:
        self._decode = decoder.decode
        self._rest = b""

    def feed(self, data: bytes) -> list[T]:
        """The messages that are complete with `data`. Raises Nonsense; there is no way on from there."""
        data = self._rest + data if self._rest else data
        found: list[T] = []
        at, end = 0, len(data)
        while end - at >= _LENGTH:
            body = at + _LENGTH
            length = int.from_bytes(data[at:body], "big")
            next_at = body + length
            if length > _LONGEST:
                raise InvalidFrame(f"a message of {length} bytes")
            if next_at > end:
                break
            try:
                found.append(self._decode(data[body:next_at]))
            except msgspec.MsgspecError as error:
                raise InvalidFrame(str(error)) from None
            at = next_at
        self._rest = data[at:]
        return found


def orders() -> Frames[Order]:
    """What a child hears."""
    return Frames(_orders)


def words() -> Frames[Word]:
    """What a worker hears from a child."""
    return Frames(_words)
