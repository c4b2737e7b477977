"""Hides the values of secrets in what a worker sends: logs, results, errors and progress.

A value is found as it is, URL-encoded (any of its bytes may be encoded), in base64 at each of the three places within a
longer text, also with line breaks, in hexadecimal, and as JSON, Python, HTML and shells write it. Lines of a value with
several lines are hidden too. What a program does beyond that to a value, such as reversing it, cannot be found.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from mainspring.domain.secret_names import MASK
from mainspring.wire.execution import Cause
from mainspring.worker.execution.attempt import AttemptEnding

SHORTEST = 8  # bytes of a value, and of a line of it, that are hidden
_HIDDEN = MASK.encode()
_HIDDEN_JSON = msgspec.Raw(f'"{MASK}"'.encode())
_ANCHOR = 4  # characters by which a value is searched for; the rest is compared
_CUT = " ... "  # what kernel/texts.py puts into the place of what it leaves out
_MOST_CUTS = 4
_NOT, _PARTLY = -1, -2
_BREAKS = b"\r\n"
_BREAK = b"(?:\r?\n)?"


class Form:
    """A text that stands for a value."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text = text

    @property
    def first(self) -> bytes:
        """The bytes with which it may begin."""
        return self.text[:1]

    def anchors(self) -> list[bytes]:
        """Patterns for its first characters. Each begins with a byte, so that a search skips all others."""
        return [re.escape(self.text[:_ANCHOR])]

    def match(self, data: bytes, at: int) -> int:
        """Where it ends if it begins at `at`, _PARTLY if the data ends within it, or _NOT."""
        text = self.text
        if data.startswith(text, at):
            return at + len(text)
        return _PARTLY if len(data) - at < len(text) and text.startswith(data[at:]) else _NOT


class BrokenForm(Form):
    """A text that programs break into lines."""

    __slots__ = ()

    def anchors(self) -> list[bytes]:
        return [_BREAK.join(re.escape(self.text[place : place + 1]) for place in range(_ANCHOR))]

    def match(self, data: bytes, at: int) -> int:
        text, done, end = self.text, 0, len(data)
        while done < len(text):
            if at >= end:
                return _PARTLY
            line_end = data.find(b"\n", at)
            line_end = end if line_end < 0 else line_end
            line = data[at : min(line_end, at + len(text) - done)].rstrip(b"\r")
            if not text.startswith(line, done):
                return _NOT
            done += len(line)
            at += len(line)
            if done == len(text):
                return at
            breaks = len(data[at : at + 2]) - len(data[at : at + 2].lstrip(_BREAKS))
            if not breaks and at < end:
                return _NOT
            at += breaks
        return at


class EncodedForm(Form):
    """A text of which any byte may be URL-encoded."""

    __slots__ = ()

    @property
    def first(self) -> bytes:
        return self.text[:1] + b"%"

    def anchors(self) -> list[bytes]:
        tokens = [_url_codes(byte) for byte in self.text[:_ANCHOR]]
        rest = b"".join(b"(?:" + b"|".join(token) + b")" for token in tokens[1:])
        return [text + rest for text in tokens[0]]

    def match(self, data: bytes, at: int) -> int:
        end = len(data)
        for byte in self.text:
            if at >= end:
                return _PARTLY
            found = data[at]
            if found == 0x25:  # %
                code = data[at + 1 : at + 3]
                wanted = b"%02x" % byte
                if code.lower() == wanted:
                    at += 3
                    continue
                if end - at < 3 and wanted.startswith(code.lower()):
                    return _PARTLY
            if found != byte and not (found == 0x2B and byte == 0x20):
                return _NOT
            at += 1
        return at


class Redactor:
    """Made once for each run that has secrets."""

    def __init__(self, values: Iterable[str]) -> None:
        forms: dict[tuple[type[Form], bytes], Form] = {}
        for value in values:
            whole = value.strip()
            found = _forms(whole) + [Form(line.encode()) for line in _lines(whole)]
            forms.update({(type(form), form.text): form for form in found if len(form.text) >= SHORTEST})
        self._plain = sorted({form.text for form in forms.values() if type(form) is Form}, key=len, reverse=True)
        self._by_first: dict[int, list[Form]] = {}
        for form in forms.values():
            for byte in form.first:
                self._by_first.setdefault(byte, []).append(form)
        anchors = dict.fromkeys(anchor for form in forms.values() for anchor in form.anchors())
        self._anchor = re.compile(b"|".join(anchors) or b"(?!)")

    def __repr__(self) -> str:
        return "Redactor()"

    def data(self, data: bytes, *, cut: bool = False) -> bytes:
        """`cut`: more would follow, so what may be the beginning of a value at its end is hidden too."""
        done, rest = self.split(data)
        return done + (_HIDDEN if cut and len(rest) >= _ANCHOR else rest)

    def has_value(self, data: bytes) -> bool:
        return self.data(data) != data

    def text(self, text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")
        found = self.data(data)
        return text if found == data else found.decode("utf-8", "replace")

    def error(self, text: str) -> str:
        """An error, which may have been shortened in the middle of a value."""
        text = self.text(text)
        if _CUT not in text:
            return text
        parts = text.split(_CUT, _MOST_CUTS)
        for place in range(len(parts) - 1):
            parts[place] = self.data(parts[place].encode("utf-8", "replace"), cut=True).decode("utf-8", "replace")
            parts[place + 1] = self._without_end(parts[place + 1])
        return _CUT.join(parts)

    def json(self, raw: msgspec.Raw) -> msgspec.Raw:
        """A result. A value that is hidden in a number becomes a text."""
        data = bytes(raw)
        try:
            value = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return _HIDDEN_JSON if self.has_value(data) else raw
        hidden = self._hidden(value)
        encoded = data if hidden is value else msgspec.json.encode(hidden)
        # What only looks like a value because of the commas between two texts.
        return _HIDDEN_JSON if self.has_value(encoded) else msgspec.Raw(encoded)

    def ending(self, ending: AttemptEnding) -> AttemptEnding:
        cause = ending.cause
        if cause is not None and cause.errors:
            cause = Cause([self.text(name) for name in cause.errors], cause.exit_code, cause.http_status)
        return msgspec.structs.replace(
            ending,
            error=None if ending.error is None else self.error(ending.error),
            result=None if ending.result is None else self.json(ending.result),
            cause=cause,
        )

    def stream(self) -> RedactedStream:
        return RedactedStream(self)

    def split(self, data: bytes) -> tuple[bytes, bytes]:
        """`data` without values, and the end of it that may be the beginning of one."""
        done: list[bytes] = []
        at = search = 0
        while (found := self._anchor.search(data, search)) is not None:
            place = found.start()
            ends = self._match(data, place)
            if ends == _PARTLY:
                return b"".join([*done, data[at:place]]), data[place:]
            if ends == _NOT:
                search = place + 1
            else:
                done += (data[at:place], _HIDDEN)
                at = search = ends
        # What is too short for an anchor. An encoded byte has three characters, and a line break two.
        for place in range(max(search, len(data) - 3 * _ANCHOR), len(data)):
            if data[place] in self._by_first and self._match(data, place) == _PARTLY:
                return b"".join([*done, data[at:place]]), data[place:]
        return b"".join([*done, data[at:]]), b""

    def _match(self, data: bytes, at: int) -> int:
        """Where the longest value ends that begins there, or _PARTLY or _NOT."""
        return max((form.match(data, at) for form in self._by_first.get(data[at], ())), key=_worth, default=_NOT)

    def _without_end(self, text: str) -> str:
        """A text that may begin with the end of a value."""
        data = text.encode("utf-8", "replace")
        for value in self._plain:
            for size in range(min(len(value) - 1, len(data)), _ANCHOR - 1, -1):
                if data.startswith(value[-size:]):
                    return (_HIDDEN + data[size:]).decode("utf-8", "replace")
        return text

    def _hidden(self, value: Any) -> Any:
        """Decoded JSON without values; `value` itself if it has none."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            made: dict[str, Any] = {self.text(name): self._hidden(inner) for name, inner in value.items()}
            same = all(name in value and made[name] is value[name] for name in made)
            return value if same and len(made) == len(value) else made
        if isinstance(value, list):
            items = [self._hidden(inner) for inner in value]
            return value if all(a is b for a, b in zip(items, value, strict=True)) else items
        if isinstance(value, int | float) and not isinstance(value, bool):
            return MASK if self.has_value(msgspec.json.encode(value)) else value
        return value


class RedactedStream:
    """Hides values in bytes that come in pieces. What may be the beginning of a value waits for what follows."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        done, self._held = self._redactor.split(self._held + data)
        return done

    def end(self) -> bytes:
        """What waits, when nothing follows. If most of a value may be in it, it is hidden."""
        held, self._held = self._held, b""
        return _HIDDEN if len(held) >= SHORTEST else held


def _worth(end: int) -> int:
    """A whole value counts more than a part of one, and a part more than nothing."""
    return end if end >= 0 else -2 if end == _NOT else -1


def _lines(value: str) -> list[str]:
    """The lines of a value that has several."""
    lines = [line.strip() for line in value.splitlines()]
    return lines if len(lines) > 1 else []


def _forms(value: str) -> list[Form]:
    data = value.encode()
    texts = {value, html.escape(value), html.escape(value, quote=False), repr(value)[1:-1], repr(data)[2:-1]}
    texts |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    texts |= {value.replace("'", "'\"'\"'"), value.replace("'", "'\\''"), value.replace("\n", "\r\n")}
    in_hex = data.hex().encode()
    return [
        *(Form(text.encode()) for text in sorted(texts)),
        EncodedForm(data),
        *map(BrokenForm, sorted(_in_base64(data))),
        BrokenForm(in_hex),
        BrokenForm(in_hex.upper()),
    ]


def _url_codes(byte: int) -> list[bytes]:
    """Patterns for a byte as it may stand in a URL or a form."""
    code = b"%02X" % byte
    texts = [b"%" + code, b"%" + code.lower(), re.escape(bytes((byte,)))]
    return list(dict.fromkeys([*texts, rb"\+"] if byte == 0x20 else texts))


def _in_base64(data: bytes) -> set[bytes]:
    """What is the same of the value in base64, whatever stands before and behind it."""
    found: set[bytes] = set()
    for before, skipped in ((0, 0), (1, 2), (2, 3)):
        text = base64.b64encode(bytes(before) + data).rstrip(b"=")
        sure = text[skipped : len(text) - ((before + len(data)) % 3 > 0)]
        found |= {sure, sure.replace(b"+", b"-").replace(b"/", b"_")}
    return found
