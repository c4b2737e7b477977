"""Texts from outside: makes them storable and limits their size."""

from __future__ import annotations

import re
from collections.abc import Iterable

# How the error of a command begins. Its output follows, and says why at its end.
_ENDED_BY = re.compile(
    r"(exit code \d+|killed by [\w ]+|[\w ]*limit of [\w. ]+ exceeded|timed out after [\w.]+|worker stopped|stopped): "
)


def storable_text(text: str) -> str:
    """`text` in a form that JSON and PostgreSQL accept: NUL and lone surrogates are replaced."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def shorten_text(text: str, most_bytes: int) -> str:
    """`text` with at most `most_bytes` bytes in UTF-8. A longer text keeps its first quarter and its end."""
    data = text.encode()
    if len(data) <= most_bytes:
        return text
    head, tail = data[: most_bytes // 4], data[-(most_bytes * 3 // 4 - 5) :]
    return (head + b" ... " + tail).decode("utf-8", "ignore")


def as_ranges(numbers: Iterable[int]) -> str:
    """Numbers in a short form: 0-3,7,9-11."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1] = [ranges[-1][0], number]
        else:
            ranges.append([number])
    return ",".join("-".join(map(str, each)) for each in ranges)


def error_line(error: str) -> str:
    """An error in one line: how a command ended and its last line of output, or the exception of a Python task, which
    stands before its traceback."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    if len(lines) < 2:
        return "".join(lines)
    ended = _ENDED_BY.match(lines[0])
    if ended:
        return f"{ended[0]}{lines[-1]}"
    return lines[-1] if lines[0].startswith("Traceback ") else lines[0]
