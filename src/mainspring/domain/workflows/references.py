"""References in payloads: objects that stand for a value that is known only when a step is ready.

`{"$from": "extract", "path": "rows.0"}` is the result of an upstream step, or a part of it. `{"$parameter": "region"}`
is a parameter of the run. In members of a map, `{"$item": "path"}` is the item or a part of it, `{"$index": true}` and
`{"$total": true}` are numbers. `{"$literal": ...}` is what it contains, without a look inside. Nothing is evaluated:
a text is never a template. `{"$secret": ...}` of a call stays as it is: only the worker knows its value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.texts import shown
from mainspring.domain.workflows.definition import StepMap
from mainspring.kernel.config import MAX_PAYLOAD_BYTES
from mainspring.wire.secrets import is_reference
from mainspring.wire.workflows import MAX_MEMBERS

FROM, PARAMETER, ITEM, INDEX, TOTAL, LITERAL = "$from", "$parameter", "$item", "$index", "$total", "$literal"
OF_A_MEMBER = (ITEM, INDEX, TOTAL)
LONGEST_PATH = 1000
DEEPEST = 100  # levels of a payload with references
_ALL = (FROM, PARAMETER, ITEM, INDEX, TOTAL, LITERAL)
_MISSING = object()
_encode = msgspec.json.Encoder().encode


class ParsedReference(msgspec.Struct, frozen=True):
    """kind: one of the words with a $. of: the step or the parameter. where: its place in the payload."""

    kind: str
    of: str = ""
    path: str = ""
    where: str = ""

    def shown(self) -> str:
        """As it is written, for people."""
        inner: dict[str, Any] = {self.kind: self.of or True}
        if self.kind == ITEM:
            inner = {ITEM: self.path}
        elif self.path:
            inner["path"] = self.path
        return _encode(inner).decode()


class Unresolved(Exception):
    """A reference whose value is missing, or a payload that is too large. The text is the reason of the run's end."""


class Values(msgspec.Struct, frozen=True):
    """The values of references. `result` returns the result of a step, or raises Unresolved if there is none. `item`,
    `index` and `total` belong to a member of a map."""

    result: Callable[[str], Any]
    parameters: dict[str, Any] = {}
    item: Any = None
    index: int | None = None
    total: int | None = None


def may_refer(payload: str | None) -> bool:
    """Whether it may have references. False is certain: JSON may also write a $ as an escape."""
    return payload is not None and ('"$' in payload or '"\\u0024' in payload)


def is_deeper(value: Any, levels: int = DEEPEST) -> bool:
    """Whether decoded JSON has more levels of lists and objects than these."""
    left: list[Any] = [value]
    for _ in range(levels + 1):
        left = [one for one in left if isinstance(one, (list, dict))]
        if not left:
            return False
        left = [inner for outer in left for inner in (outer if isinstance(outer, list) else outer.values())]
    return True


def collect(value: Any, where: str = "payload", *, secrets: bool = False) -> list[ParsedReference]:
    """The references in decoded JSON. Raises InvalidInput for an object with a $ that is none of them. secrets: those
    to secrets may stand there too; they are not in the list."""
    return list(_collect(value, where, secrets))


def _collect(value: Any, where: str, secrets: bool) -> Iterator[ParsedReference]:
    left = [(value, where, 0)]
    while left:
        value, where, depth = left.pop()
        if depth > DEEPEST:
            raise _too_deep(where)
        if isinstance(value, list):
            left += [(item, f"{where}[{place}]", depth + 1) for place, item in reversed(list(enumerate(value)))]
        elif isinstance(value, dict):
            if secrets and is_reference(value):
                continue
            if any(name.startswith("$") for name in value):
                reference = read_reference(value, where)
                if reference.kind != LITERAL:
                    yield reference
                elif is_deeper(value, DEEPEST - depth):
                    raise _too_deep(where)
            else:
                left += [(item, f"{where}.{name}", depth + 1) for name, item in reversed(value.items())]


def read_reference(value: dict[str, Any], where: str) -> ParsedReference:
    """The reference that an object is. Raises InvalidInput."""
    kinds = [name for name in value if name.startswith("$")]
    kind = kinds[0]
    if len(kinds) > 1 or kind not in _ALL:
        raise InvalidInput(
            f"{shown(kinds[-1] if len(kinds) > 1 else kind)} is not a reference", code="invalid_reference", field=where,
            expected="one of " + ", ".join(_ALL), hint='an object that is meant as it is: {"$literal": {...}}',
        )  # fmt: skip
    rest = [name for name in value if name != kind and not (kind == FROM and name == "path")]
    if rest:
        raise InvalidInput(
            f"{shown(rest[0])} does not belong to {kind}", code="invalid_reference", field=f"{where}.{rest[0]}",
            hint='leave it out, or write {"$literal": {...}}',
        )  # fmt: skip
    of = value[kind]
    if kind == LITERAL:
        return ParsedReference(LITERAL, where=where)
    if kind in (INDEX, TOTAL):
        if of is not True:
            raise _wrong(where, kind, "true")
        return ParsedReference(kind, where=where)
    if not isinstance(of, str) or (kind != ITEM and not of):
        raise _wrong(
            where, kind, {FROM: "the name of a step", PARAMETER: "the name of a parameter"}.get(kind, "a path")
        )
    path = of if kind == ITEM else value.get("path", "")
    if not isinstance(path, str) or len(path) > LONGEST_PATH or (path and "" in path.split(".")):
        name = ITEM if kind == ITEM else "path"
        raise InvalidInput(
            f"{shown(path)} is not a path", code="invalid_reference", field=f"{where}.{name}",
            expected='names and indexes with dots, such as "rows.0.id"',
        )  # fmt: skip
    return ParsedReference(kind, "" if kind == ITEM else of, path, where)


def _too_deep(where: str) -> InvalidInput:
    return InvalidInput("it is nested too deeply for references", field=where, expected=f"{DEEPEST} levels")


def _wrong(where: str, kind: str, expected: str) -> InvalidInput:
    return InvalidInput(
        f"the value of {kind} is wrong", code="invalid_reference", field=f"{where}.{kind}", expected=expected
    )


def without_references(value: Any) -> Any:
    """The value with null in the place of references, and literals as they are."""
    return _replaced(value, lambda _: None)


def resolve(value: Any, values: Values) -> Any:
    """The value with what its references stand for. Raises Unresolved."""
    return _replaced(value, lambda reference: _value(reference, values))


def resolved_payload(payload: str, values: Values) -> str:
    """The payload of a run. Raises Unresolved if a value is missing, or if the payload is too large."""
    try:
        value = resolve(msgspec.json.decode(payload), values)
        if not isinstance(value, dict):
            raise Unresolved("the payload is not an object after its references were resolved")
        text = _encode(value)
    except RecursionError:
        raise Unresolved("the payload is nested too deeply with the results that it refers to") from None
    if len(text) > MAX_PAYLOAD_BYTES:
        raise Unresolved(
            f"the payload has {len(text)} bytes with the results that it refers to; at most {MAX_PAYLOAD_BYTES} "
            "can be passed on"
        )
    return text.decode()


def mapped_list(mapped: StepMap, values: Values) -> list[Any]:
    """The list of a map over a result or a parameter. Raises Unresolved."""
    if mapped.parameter is not None:
        what, place, reference = f"parameter {mapped.parameter}", "", ParsedReference(PARAMETER, mapped.parameter)
    else:
        assert mapped.source is not None
        source = mapped.source
        what, place = f"the result of step {source.step}", f" at {source.path or 'its top'}"
        reference = ParsedReference(FROM, source.step, source.path)
    try:
        found = _value(reference, values)
    except RecursionError:
        found = _MISSING
    if found is _MISSING or is_deeper(found):
        raise Unresolved(f"{what} is nested too deeply to map over: at most {DEEPEST} levels")
    if not isinstance(found, list):
        raise Unresolved(f"{what} is not a list{place}")
    if len(found) > MAX_MEMBERS:
        raise Unresolved(f"the list has {len(found)} items, and at most {MAX_MEMBERS} can be mapped")
    return found


def _replaced(value: Any, put: Callable[[ParsedReference], Any]) -> Any:
    if isinstance(value, list):
        return [_replaced(item, put) for item in value]
    if not isinstance(value, dict) or is_reference(value):
        return value
    if any(name.startswith("$") for name in value):
        reference = read_reference(value, "payload")
        return value[LITERAL] if reference.kind == LITERAL else put(reference)
    return {name: _replaced(item, put) for name, item in value.items()}


def _value(reference: ParsedReference, values: Values) -> Any:
    match reference.kind:
        case "$from":
            found = _at(values.result(reference.of), reference.path)
        case "$parameter":
            found = values.parameters.get(reference.of, _MISSING)
        case "$item":
            found = _at(values.item, reference.path)
        case "$index":
            found = values.index
        case _:
            found = values.total
    if found is _MISSING:
        raise Unresolved(f"there is no value for {reference.shown()}")
    return found


def _at(value: Any, path: str) -> Any:
    for part in path.split(".") if path else ():
        if isinstance(value, dict):
            value = value.get(part, _MISSING)
        elif isinstance(value, list) and part.isascii() and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return _MISSING
    return value
