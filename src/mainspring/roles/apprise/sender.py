"""Sends messages with apprise. Each message has a child process, which is killed when its time is over: a plugin that
hangs cannot be ended otherwise."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from importlib.util import find_spec

import msgspec

from mainspring.domain.errors import InvalidInput, MainspringError
from mainspring.domain.notify.apprise_urls import read_schemes, scheme_of
from mainspring.domain.notify.deliveries import AppriseDelivery
from mainspring.kernel.child_computation import TooMuchWork, compute
from mainspring.kernel.logs import get_logger
from mainspring.kinds.http.answer import NOT_WORTH_RETRYING
from mainspring.operations.notify.transport import NotSent, Sent
from mainspring.roles.apprise.job import CERTIFICATES, AppriseAnswer, AppriseJob

log = get_logger("apprise")

OPTION = "--apprise-schemes"
_AT_ONCE = 8  # children, of about 60 MB each
_CHILD = "mainspring.roles.apprise.child:deliver"


def apprise_schemes(text: str | None) -> frozenset[str]:
    """The schemes of --apprise-schemes. Raises InvalidInput that names the bad one, and MainspringError if the extra is
    missing."""
    schemes = read_schemes(text, "apprise_schemes")
    if schemes and not is_installed():
        raise MainspringError(
            f"{OPTION} needs the extra apprise, which is not installed", code="extra_missing",
            hint="pip install 'mainspring[apprise]'",
        )  # fmt: skip
    return schemes


def is_installed() -> bool:
    return find_spec("apprise") is not None


class AppriseSender:
    """allowed: as --notify-allow has it. A channel sends one message at a time: one that hangs has one child."""

    def __init__(self, schemes: frozenset[str], allowed: str | None) -> None:
        self._schemes = schemes
        self._allowed = allowed
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._turns: dict[str, asyncio.Lock] = {}
        self._waiting: Counter[str] = Counter()

    def check_url(self, url: str) -> None:
        """Raise InvalidInput unless the scheme is allowed."""
        scheme = scheme_of(url)
        if scheme not in self._schemes:
            raise InvalidInput(
                f"the server does not allow {scheme}://", field="apprise_url",
                expected=", ".join(sorted(self._schemes)) or f"no scheme: the server has no {OPTION}",
                hint=f"start the servers with {OPTION} {scheme}, or MAINSPRING_APPRISE_SCHEMES",
            )  # fmt: skip

    async def deliver(self, delivery: AppriseDelivery) -> Sent:
        """Raises NotSent. If this is cancelled, the child is killed."""
        if not is_installed():
            raise NotSent("this server has no apprise: pip install 'mainspring[apprise]'")
        turn = self._turns.setdefault(delivery.url, asyncio.Lock())
        self._waiting[delivery.url] += 1
        try:
            async with turn, self._room:
                answer = await self._asked(delivery)
        finally:
            self._waiting[delivery.url] -= 1
            if not self._waiting[delivery.url]:
                del self._waiting[delivery.url], self._turns[delivery.url]
        if answer.sent:
            return Sent(answer.status)
        if answer.refused is not None:
            log.info("a call of apprise was refused", address=answer.refused)
            raise NotSent(
                "the address is not public; allow it with --notify-allow (the server's log has the address)", final=True
            )
        final = answer.final or answer.status in NOT_WORTH_RETRYING
        raise NotSent(answer.error or "apprise did not send it", final=final, status=answer.status)

    async def _asked(self, delivery: AppriseDelivery) -> AppriseAnswer:
        certificates = {name: os.environ[name] for name in CERTIFICATES if name in os.environ}
        job = AppriseJob(
            delivery.url, delivery.title, delivery.body, delivery.good, sorted(self._schemes), self._allowed,
            certificates,
        )  # fmt: skip
        try:
            found = await compute(_CHILD, [msgspec.json.encode(job)])
            return msgspec.json.decode(found, type=AppriseAnswer)
        except TooMuchWork as error:
            raise NotSent(f"apprise was ended: {error}") from None
        except (RuntimeError, OSError, msgspec.DecodeError) as error:
            raise NotSent(f"apprise ended without an answer: {type(error).__name__}") from None
