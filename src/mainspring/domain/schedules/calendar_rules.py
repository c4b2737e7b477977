"""The rules of calendars by their digest. Rules never change: another version of a calendar has another digest.

A schedule carries the digest, so its fires stay a pure function of it. The caller loads the rules before it evaluates a
schedule; otherwise RulesNotLoaded is raised, and nothing fires as if there were no calendar.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from threading import Lock

import msgspec

from mainspring.wire.calendars import CalendarRequest

_MOST = 2000  # rules that are kept; others are loaded again
_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(CalendarRequest).decode


class RulesNotLoaded(LookupError):
    """The rules of a schedule's calendar are not at hand: load them and evaluate it again."""

    def __init__(self, digest: str | None) -> None:
        super().__init__(f"the rules {digest} of a calendar are not loaded")
        self.digest = digest


def rules_to_text(rules: CalendarRequest) -> str:
    """The rules as they are stored, without the description."""
    return _encode(msgspec.structs.replace(rules, description=None)).decode()


def digest_of(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class _Known:
    def __init__(self) -> None:
        self._rules: OrderedDict[str, CalendarRequest] = OrderedDict()
        self._lock = Lock()  # fires are planned in threads, too

    def add(self, text: str) -> str:
        digest = digest_of(text)
        with self._lock:
            if digest not in self._rules:
                self._rules[digest] = _decode(text)
            self._rules.move_to_end(digest)
            while len(self._rules) > _MOST:
                self._rules.popitem(last=False)
        return digest

    def get(self, digest: str | None) -> CalendarRequest:
        with self._lock:
            if digest is None or digest not in self._rules:
                raise RulesNotLoaded(digest)
            self._rules.move_to_end(digest)
            return self._rules[digest]

    def __contains__(self, digest: str) -> bool:
        return digest in self._rules


_known = _Known()


def know_rules(text: str) -> str:
    """Keep the rules with this text for evaluations in this process. Returns their digest."""
    return _known.add(text)


def are_known(digest: str) -> bool:
    return digest in _known


def rules_of(digest: str | None) -> CalendarRequest:
    """Raises RulesNotLoaded."""
    return _known.get(digest)
