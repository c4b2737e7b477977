"""Calendars and limits of queues that an application declares. Workers store them before its schedules, which may name
the calendars."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, TypeVar

import msgspec

from mainspring.domain.errors import NotFound
from mainspring.wire.calendars import CalendarRequest

if TYPE_CHECKING:
    from mainspring.sdk.client.async_client import AsyncClient

T = TypeVar("T")
Stored = Literal["created", "updated", "unchanged"]


class CalendarOptions(TypedDict, total=False):
    """The rules of a calendar, as `PUT /v1/calendars/{name}` takes them."""

    timezone: str
    holidays: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    dates: Sequence[str | Mapping[str, Any]]
    weekdays: Sequence[str]
    hours: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    blackouts: Sequence[Mapping[str, Any]]
    description: str


class DeclaredSetting(Protocol):
    """Something that the application declares beside its jobs. key: its name in logs."""

    @property
    def key(self) -> str: ...

    def body(self) -> Any:
        """What is declared, for the digest of the version."""

    async def put(self, client: AsyncClient) -> Stored:
        """Store it at the server."""


@dataclass(frozen=True, slots=True)
class DeclaredCalendar:
    """A calendar of the application."""

    name: str
    rules: Mapping[str, Any]

    @property
    def key(self) -> str:
        return f"calendar {self.name}"

    def body(self) -> Any:
        return dict(self.rules)

    def check(self) -> None:
        """Raise ValueError unless the rules have the form that a server takes."""
        from mainspring.domain.intake.decoding_errors import in_words

        try:
            msgspec.convert(dict(self.rules), CalendarRequest)
        except msgspec.ValidationError as error:
            raise ValueError(f"calendar {self.name}: {in_words(error, CalendarRequest).in_sentences()}") from None

    async def put(self, client: AsyncClient) -> Stored:
        before = await _found(client.calendar(self.name))
        after = await client.set_calendar(self.name, self.rules)
        if before is None:
            return "created"
        return "unchanged" if before.version == after.version else "updated"


@dataclass(frozen=True, slots=True)
class DeclaredLimits:
    """The limits of a queue. Those that are not given stay as they are."""

    queue: str
    limits: Mapping[str, Any]

    @property
    def key(self) -> str:
        return f"queue {self.queue}"

    def body(self) -> Any:
        return dict(self.limits)

    async def put(self, client: AsyncClient) -> Stored:
        queue = await _found(client.queue(self.queue))
        before = None if queue is None else queue.limits
        if before is not None and all(getattr(before, name) == value for name, value in self.limits.items()):
            return "unchanged"
        await client.set_queue_limits(self.queue, **self.limits)
        return "created" if before is None else "updated"


async def _found(reading: Awaitable[T]) -> T | None:
    """What is stored at the server, if it is there."""
    try:
        return await reading
    except NotFound:
        return None
