"""What sends messages over the network. The server builds it (roles/notify_transport.py)."""

from __future__ import annotations

from typing import Protocol

import msgspec

from mainspring.domain.notify.deliveries import Delivery


class Sent(msgspec.Struct, frozen=True):
    """The receiver took the message. status: of HTTP."""

    status: int | None = None


class NotSent(Exception):
    """A message was not sent, or no answer came. final: another attempt would get the same answer. after: the receiver
    asks to wait so many seconds. The text has no secret of the channel."""

    def __init__(
        self, text: str, *, final: bool = False, status: int | None = None, after: float | None = None
    ) -> None:
        super().__init__(text)
        self.final = final
        self.status = status
        self.after = after


class Transport(Protocol):
    async def deliver(self, delivery: Delivery, /) -> Sent: ...

    def check_apprise(self, url: str, /) -> None:
        """Raise InvalidInput unless this process may use the scheme of an address of apprise."""

    def close(self) -> None: ...


class NoTransport:
    """For parts of the product that send nothing."""

    async def deliver(self, _: Delivery, /) -> Sent:
        raise NotSent("this process sends no messages")

    def check_apprise(self, _: str, /) -> None: ...

    def close(self) -> None: ...
