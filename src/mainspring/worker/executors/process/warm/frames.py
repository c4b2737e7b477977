"""The messages between a worker and its warm children: MessagePack structs with a length prefix."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from mainspring.wire.exchange import OutcomeStatus
from mainspring.wire.execution import Cause, ResourceLimits

T = TypeVar("T")
_LENGTH = 4
_LONGEST = 8 * 1024 * 1024  # far more than a payload and an environment


class Hello(msgspec.Struct, tag="hello", array_like=True):
    """The first message of the worker: the server to which tasks submit jobs."""

    server: str
    token: str


class Begin(msgspec.Struct, tag="begin", array_like=True):
    """Run this in `folder`, which the child creates and empties between runs. "": in the folder of the worker."""

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
    max_attempts: int
    snoozes: int
    at_most_once: bool
    idempotency_key: str | None = None
    generation: int = 1
    secrets: dict[str, str] | None = None
    fence: int = 0


class Halt(msgspec.Struct, tag="halt", array_like=True):
    """End this run. Ignored if the run has ended already."""

    run_id: str


class ReadyFrame(msgspec.Struct, tag="ready", array_like=True):
    """The application is loaded. The interpreter uses this much memory, and has used so many CPU seconds."""

    memory: int
    cpu: float = 0.0


class Unready(msgspec.Struct, tag="unready", array_like=True):
    """The application cannot be loaded; the child exits."""

    error: str


class ProgressFrame(msgspec.Struct, tag="progress", array_like=True):
    fraction: float | None
    message: str | None


class Ended(msgspec.Struct, tag="ended", array_like=True):
    """The run has ended, and all its output has been written. `unfit` says why the child must not run another one, for
    example because processes or threads are left. cpu: the CPU seconds of this process, and of those it has waited for,
    since it was started. peak: the most resident memory that it used in this run."""

    status: OutcomeStatus
    error: str | None
    retry: bool
    retry_after: float | None
    cause: Cause | None
    result: bytes | None
    unfit: str | None
    snooze: float | None = None
    cpu: float = 0.0
    peak: int = 0


Order = Hello | Begin | Halt
Word = ReadyFrame | Unready | ProgressFrame | Ended

_encode = msgspec.msgpack.Encoder().encode
_orders = msgspec.msgpack.Decoder(Order)
_words = msgspec.msgpack.Decoder(Word)


def framed(message: Order | Word) -> bytes:
    body = _encode(message)
    return len(body).to_bytes(_LENGTH, "big") + body


class InvalidFrame(ValueError):
    """The received bytes are not a valid message."""


class Frames(Generic[T]):
    """Splits a stream of bytes into messages."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[T]) -> None:
        self._decode = decoder.decode
        self._rest = b""

    def feed(self, data: bytes) -> list[T]:
        """The messages that are complete with `data`. After InvalidFrame the stream cannot be read any further."""
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
    """Messages to a child."""
    return Frames(_orders)


def words() -> Frames[Word]:
    """Messages from a child."""
    return Frames(_words)
