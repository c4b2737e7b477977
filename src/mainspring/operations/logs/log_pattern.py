"""What the search of many logs looks for: words, a text anywhere, or a regular expression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.log_words import asked, follows_code, words_of, words_of_pattern
from mainspring.operations.logs.log_search import Needle, WantedText
from mainspring.operations.paging.search import LogQuery

_IN_WORDS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
_MOST_MEMORY = 8 * 1024 * 1024  # of a compiled expression


class Words(Needle):
    """A text that begins and ends where words do: `refused` is not found in `unrefused`. Letters of other alphabets are
    not parts of words."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._begins, self._ends = ord(text[0]) in _IN_WORDS, ord(text[-1]) in _IN_WORDS
        self._size = len(text.encode())

    def lines(self, data: bytes) -> Iterator[int]:
        done = -1
        for at in self.places(data):
            if at < done:
                continue
            after = data[at + self._size : at + self._size + 1]
            if (self._begins and self._goes_on(data, at)) or (self._ends and after and after[0] in _IN_WORDS):
                continue
            yield at
            done = data.find(b"\n", at) + 1
            if not done:
                return

    @staticmethod
    def _goes_on(data: bytes, at: int) -> bool:
        """Whether the byte at `at` continues a word."""
        return at > 0 and data[at - 1] in _IN_WORDS and not follows_code(data, at)


class Expression:
    """A regular expression of RE2, which takes time in proportion to the text. A line is searched by itself."""

    slow = True
    longest = 1

    def __init__(self, pattern: str) -> None:
        compiled = _compiled(pattern)
        self._find = compiled.search

    def lines(self, data: bytes) -> Iterator[int]:
        start = 0
        while start < len(data) and (found := self._find(data, start)) is not None:
            at = found.start()
            if at >= len(data):
                return
            yield at
            start = data.find(b"\n", at) + 1
            if not start:
                return


def _compiled(pattern: str) -> Any:
    try:
        re2: Any = import_module("re2")
    except ImportError:
        raise InvalidInput(
            "this server has no google-re2, so it searches no regular expressions", code="invalid_parameter",
            field="regex", hint="search for a text, or install the extra: pip install 'mainspring[regex]'",
        ) from None  # fmt: skip
    options = re2.Options()
    options.case_sensitive, options.never_nl, options.log_errors = False, True, False
    options.max_mem = _MOST_MEMORY
    try:
        return re2.compile(f"(?m){pattern}", options=options)
    except re2.error as error:
        why = error.args[0] if error.args else ""
        raise InvalidInput(
            f"not a regular expression: {why.decode() if isinstance(why, bytes) else why}", code="invalid_parameter",
            field="regex", expected="the syntax of RE2, which has no look-around and no back references",
        ) from None  # fmt: skip


class Search(msgspec.Struct, frozen=True):
    """`words`: what a chunk of output must have, if that is known (domain/log_words.py)."""

    wanted: WantedText
    words: Sequence[bytes] | None


def search_of(query: LogQuery) -> Search:
    """Raises InvalidInput unless it asks for a text or for an expression."""
    if (query.text is None) == (query.regex is None):
        raise InvalidInput(
            "a search needs a text or a regular expression", code="invalid_parameter", field="text",
            expected="text, such as text=connection refused, or regex",
        )  # fmt: skip
    if query.regex is not None:
        return Search(Expression(query.regex), asked(words_of_pattern(query.regex)))
    text = query.text or ""
    if query.inside_words:
        return Search(Needle(text), None)
    return Search(Words(text), asked(words_of(text)))
