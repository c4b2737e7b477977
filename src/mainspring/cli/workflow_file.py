"""Files with workflows: YAML or JSON, one workflow or several documents. An error names the file and the line, also one
that the server finds.

Plain words are read as YAML 1.2 reads them: `on`, `no` and `2026-01-01` are texts, not truth values or dates. A name
that occurs twice in a mapping is refused.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainspring.domain.errors import InvalidInput

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_WHOLE = re.compile(r"[-+]?[0-9]+")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_QUOTES = ("'", '"', "|", ">")
_TAG = "tag:yaml.org,2002:"
_MOST_NODES = 5_000_000  # 100,000 steps have fewer; a few aliases can stand for more than fit into memory
_DEEPEST = 200  # levels; the parser's own limit is the end of its stack
_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_MAY_BE_DEEP = re.compile(rf"(?:[-?:] +){{{_DEEPEST // 2}}}|^ {{{_DEEPEST}}}", re.MULTILINE)
_LONGEST_NUMBER = 1000
_ADVICE = {
    "found character that cannot start any token": "; indent with spaces, not with tabs",
    "mapping values are not allowed in this context": "; check the indentation, and put a text with a colon in quotes",
    "did not find expected key": "; check the indentation",
    "did not find expected '-' indicator": "; check the indentation",
}


class YamlLines:
    """The lines of a workflow in its file."""

    def __init__(self, file: str, node: Any) -> None:
        self._file = file
        self._node = node

    @contextmanager
    def named(self) -> Iterator[None]:
        """Errors about a field of the workflow name its line."""
        from mainspring.domain.errors import MainspringError

        try:
            yield
        except MainspringError as error:
            if error.field:
                error.detail = f"{error.detail} ({self._file}, line {self._line(error.field)})"
            raise

    def _line(self, field: str) -> int:
        """The line of the field, or of what it is missing in."""
        return self.line_of([int(index) if index else name for index, name in _PART.findall(field)])

    def line_of(self, path: Sequence[str | int]) -> int:
        """The line of what lies at the path, or of the last of it that is there."""
        node, line = self._node, self._node.start_mark.line
        for part in path:
            if isinstance(part, int) and node.id == "sequence" and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line
            elif node.id == "mapping" and (found := [pair for pair in node.value if pair[0].value == part]):
                key, node = found[0]
                line = key.start_mark.line
            else:
                break
        return int(line) + 1


def read_workflows(file: str) -> list[dict[str, Any]]:
    """The workflows in the file; - is stdin. Raises InvalidInput that names the line."""
    return [body for body, _ in read_with_lines(file)]


def read_with_lines(file: str) -> list[tuple[dict[str, Any], YamlLines]]:
    """Read the workflows of a file, each with its line numbers."""
    name = name_of(file)
    found = read_yaml(name, read_text(file), "a workflow is a mapping: workflow_id, schedule, steps")
    if not found:
        raise refused(f"{name} is empty", expected="a workflow with its steps")
    return found


def name_of(file: str) -> str:
    return "stdin" if file == "-" else file


def read_text(file: str) -> str:
    """The text of a file; - is stdin. Raises InvalidInput."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise refused(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def read_yaml(name: str, text: str, form: str) -> list[tuple[dict[str, Any], YamlLines]]:
    """The documents of a YAML text, each with its line numbers. Raises InvalidInput that names the line. `form`: what
    a document must be."""
    import yaml

    _check_depth(name, text)
    try:
        nodes = list(yaml.compose_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.YAMLError as error:
        raise refused(_where(name, error)) from None
    return [(_Document(name, form).read(node), YamlLines(name, node)) for node in nodes if node is not None]


def is_plain_text(text: str) -> bool:
    """Whether a word without quotes is read as a text."""
    return text not in _WORDS and not _NUMBER.fullmatch(text)


class _Document:
    def __init__(self, file: str, form: str) -> None:
        self._file = file
        self._form = form
        self._nodes = 0
        self._inside: set[int] = set()

    def read(self, node: Any) -> dict[str, Any]:
        found = self._value(node)
        if not isinstance(found, dict):
            raise self._wrong(node, self._form)
        return found

    def _value(self, node: Any) -> Any:
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise self._wrong(node, f"the document has more than {_MOST_NODES:,} values")
        if not node.tag.startswith(_TAG):
            raise self._wrong(node, f"the tag {node.tag} is unknown")
        if node.id == "scalar":
            return self._scalar(node)
        if id(node) in self._inside:
            raise self._wrong(node, "the alias contains itself")
        self._inside.add(id(node))
        value: Any = dict(self._members(node)) if node.id == "mapping" else [self._value(one) for one in node.value]
        self._inside.remove(id(node))
        return value

    def _members(self, node: Any) -> Iterator[tuple[str, Any]]:
        seen: set[str] = set()
        for key, value in node.value:
            if key.id != "scalar":
                raise self._wrong(key, "a name must be a text")
            if key.value in seen:
                raise self._wrong(key, f"{key.value} occurs twice")
            seen.add(key.value)
            yield key.value, self._value(value)

    def _scalar(self, node: Any) -> Any:
        text: str = node.value
        if node.style in _QUOTES or (text not in _WORDS and not _NUMBER.fullmatch(text)):
            return text
        if text in _WORDS:
            return _WORDS[text]
        if len(text) > _LONGEST_NUMBER or math.isinf(float(text)):
            raise self._wrong(node, "the number is too large; put it in quotes if it is a text")
        return int(text) if _WHOLE.fullmatch(text) else float(text)

    def _wrong(self, node: Any, what: str) -> InvalidInput:
        return refused(f"{self._file}, line {node.start_mark.line + 1}: {what}")


def _check_depth(file: str, text: str) -> None:
    """Raise InvalidInput if the document is nested too deeply. The parser would end the process."""
    import yaml

    if text.count("[") + text.count("{") <= _DEEPEST and not _MAY_BE_DEEP.search(text):
        return
    depth = 0
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                raise refused(f"{file}, line {event.start_mark.line + 1}: it is nested too deeply: {_DEEPEST} levels")
    except yaml.YAMLError as error:
        raise refused(_where(file, error)) from None


def _where(file: str, error: Any) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    problem += _ADVICE.get(problem, "")
    return f"{file}: {problem}" if mark is None else f"{file}, line {mark.line + 1}: {problem}"


def refused(detail: str, expected: str | None = None) -> InvalidInput:
    from mainspring.domain.errors import InvalidInput

    return InvalidInput(detail, code="bad_file", field="file", expected=expected)
