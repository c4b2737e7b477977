"""What becomes of the messages of a source: the event or the job of each, or why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from mainspring.domain.errors import InvalidInput, MainspringError, Unavailable
from mainspring.domain.intake.decoding_errors import in_words
from mainspring.domain.job import JobDefinition
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.access.caller import Caller
from mainspring.operations.events.emitter import read_event
from mainspring.operations.limits.quota_guard import QuotaGuard
from mainspring.operations.submit.submitter import Submitter
from mainspring.store.events import NewEvent
from mainspring.store.sources import DeadMessage
from mainspring.wire.events import EventRequest
from mainspring.wire.jobs import JobRequest
from mainspring.wire.sources import LONGEST_DEAD, LONGEST_PROBLEM, SourceMessage

T = TypeVar("T", bound=msgspec.Struct)
_NOT_STORABLE = dict.fromkeys((0, *range(0xD800, 0xE000)), "�")


class Readings(msgspec.Struct):
    events: list[NewEvent] = []
    jobs: list[JobDefinition] = []
    dead: list[DeadMessage] = []


class MessageReader:
    def __init__(self, submitter: Submitter, quotas: QuotaGuard) -> None:
        self._submitter = submitter
        self._quotas = quotas

    async def read(self, caller: Caller, messages: Sequence[SourceMessage]) -> Readings:
        """Raises Unavailable. What cannot be read is dead."""
        found = Readings()
        slices = TimeSlices()
        for message in messages:
            if message.dead is not None:
                found.dead.append(dead(message, message.dead.reason, message.dead.value))
                continue
            try:
                if message.job:
                    found.jobs.append(await self._job(caller, message.job))
                else:
                    found.events.append(self._event(caller, message.event))
            except Unavailable:
                raise
            except MainspringError as error:
                found.dead.append(dead(message, str(error)))
            if slices.over:
                await slices.pause()
        return found

    def _event(self, caller: Caller, given: msgspec.Raw) -> NewEvent:
        event = read_event(_decoded(given, EventRequest))
        self._quotas.check_payload(caller, event.payload)
        return event

    async def _job(self, caller: Caller, given: msgspec.Raw) -> JobDefinition:
        request = _decoded(given, JobRequest)
        if request.idempotency_key is not None:
            raise InvalidInput(
                "the id of the message is what makes it one job", field="idempotency_key", hint="leave it out"
            )
        return await self._submitter.check(caller, request)


def dead(message: SourceMessage, reason: str, value: str | None = None) -> DeadMessage:
    if value is None:
        value = bytes(message.job or message.event)[: 4 * LONGEST_DEAD].decode(errors="replace")
    name = message.id if message.id is not None else "" if message.offset is None else str(message.offset)
    return DeadMessage(name, _storable(reason, LONGEST_PROBLEM), _storable(value, LONGEST_DEAD))


def _storable(text: str, most: int) -> str:
    return text[:most].translate(_NOT_STORABLE)


def _decoded(given: Any, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(given, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise in_words(error, shape) from None
