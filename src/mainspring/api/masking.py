"""Viewers and submitters see no secrets: the values of headers and variables whose names look secret are masked in
every answer.

The fields `env` and `headers` of all structs are masked, and the members `env` and `headers` of JSON values such as
payloads, results and the steps of workflows. Views are shared between requests, so what is masked is a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import cache, partial, wraps
from typing import Any, get_type_hints

import msgspec

from mainspring.api.outside import hide_names, without_outside
from mainspring.api.struct_types import types_in
from mainspring.api.web import Response
from mainspring.domain.errors import MainspringError
from mainspring.domain.secret_names import MASK, masked_pairs
from mainspring.kernel.time_slices import TimeSlices
from mainspring.operations.access.permissions import SUBMITTER, VIEWER, WORKER, Roles

_PAIRS = frozenset({"env", "headers"})
_KEPT_FROM = frozenset({VIEWER, SUBMITTER})
_DEEPEST = 200  # levels of a JSON value; what lies deeper is masked as a whole
_IN_JSON = tuple(f'"{name}"'.encode() for name in _PAIRS)
_members = msgspec.json.Decoder(list[msgspec.Raw]).decode


class _Part(Enum):
    PAIRS = "pairs"  # names with values
    JSON = "json"
    STRUCTS = "structs"  # structs that have such parts


def for_viewers(function: Callable[..., Any], roles: Roles) -> Callable[..., Any]:
    """The handler, with masked answers where a viewer or a submitter calls it, and without data for tokens that do not
    see payloads."""
    if WORKER in roles or (VIEWER not in roles and not _may_show_data(function)):
        return function

    @wraps(function)
    async def masking(**arguments: Any) -> Any:
        caller = arguments["request"].scope.get("caller") if "request" in arguments else None
        try:
            answer = await function(**arguments)
        except MainspringError as error:
            if caller is not None and not caller.reaches_all:
                hide_names(error)
            raise
        if caller is None:
            return answer
        if not caller.reaches_all:
            outside = partial(arguments["request"].app.state.admission.outside, caller)
            if isinstance(answer, Response):
                answer.content = await without_outside(answer.content, outside)
            else:
                answer = await without_outside(answer, outside)
        if caller.narrowing is not None and not caller.narrowing.payloads:
            if isinstance(answer, Response):
                answer.content = without_data(answer.content)
                return answer
            return without_data(answer)
        return await _masked_answer(answer) if caller.role in _KEPT_FROM else answer

    return masking


def _may_show_data(function: Callable[..., Any]) -> bool:
    """Whether its answers may have payloads and the like."""
    types = types_in(get_type_hints(function).get("return"))
    return Any in types or any(parts_of(one) for one in types if _is_struct(one))


def without_data(value: Any) -> Any:
    """A struct, or a list or dict of structs, without payloads, results and other JSON values, and with masks in place
    of the values of variables and headers."""
    if isinstance(value, msgspec.Struct):
        changed = {name: _without_data(getattr(value, name), part) for name, part in parts_of(type(value))}
        return msgspec.structs.replace(value, **changed) if changed else value
    if isinstance(value, list):
        return [without_data(one) for one in value]
    if isinstance(value, dict):
        return {name: without_data(one) for name, one in value.items()}
    return None if isinstance(value, msgspec.Raw) else value


def _without_data(value: Any, part: _Part) -> Any:
    if part is _Part.PAIRS:
        return dict.fromkeys(value, MASK) if isinstance(value, dict) else None
    if part is _Part.JSON:
        return None
    return [] if isinstance(value, msgspec.Raw) else without_data(value)


async def _masked_answer(answer: Any) -> Any:
    if isinstance(answer, Response):
        answer.content = await _masked_content(answer.content)
        return answer
    return await _masked_content(answer)


async def _masked_content(content: Any) -> Any:
    """`content` with its long lists masked in slices: a workflow has up to 100,000 steps, which are not decoded."""
    if isinstance(content, list):
        return await _in_slices(content)
    if not isinstance(content, msgspec.Struct):
        return content
    changed: dict[str, Any] = {}
    for name, part in parts_of(type(content)):
        value = getattr(content, name)
        if part is not _Part.STRUCTS:
            changed[name] = _masked_part(value, part)
        elif isinstance(value, msgspec.Raw):
            changed[name] = await _in_slices(_members(bytes(value))) if _may_have_pairs(bytes(value)) else value
        else:
            changed[name] = await _in_slices(value) if isinstance(value, list) else masked(value)
    return msgspec.structs.replace(content, **changed) if changed else content


async def _in_slices(values: list[Any]) -> list[Any]:
    slices, made = TimeSlices(), []
    for value in values:
        made.append(masked(value))
        if slices.over:
            await slices.pause()
    return made


def masked(value: Any) -> Any:
    """A struct, or a list or dict of structs, without secrets."""
    if isinstance(value, msgspec.Struct):
        changed = {}
        for name, part in parts_of(type(value)):
            before = getattr(value, name)
            if before is not None and (after := _masked_part(before, part)) is not before:
                changed[name] = after
        return msgspec.structs.replace(value, **changed) if changed else value
    if isinstance(value, msgspec.Raw):
        return _masked_raw(value)
    if isinstance(value, list):
        return [masked(one) for one in value]
    if isinstance(value, dict):
        return {name: masked(one) for name, one in value.items()}
    return value


def _masked_part(value: Any, part: _Part) -> Any:
    if part is _Part.PAIRS:
        return masked_pairs(value) if isinstance(value, dict) else value
    return masked(value) if part is _Part.STRUCTS else _masked_json(value)


def _masked_json(value: Any, depth: int = 0) -> Any:
    """A JSON value. A call of the kind http may be given as the payload of a job."""
    if isinstance(value, msgspec.Raw):
        return _masked_raw(value)
    if not isinstance(value, dict | list):
        return value
    if depth > _DEEPEST:
        return MASK
    if isinstance(value, list):
        return [_masked_json(one, depth + 1) for one in value]
    return {
        name: masked_pairs(one) if name in _PAIRS and isinstance(one, dict) else _masked_json(one, depth + 1)
        for name, one in value.items()
    }


def _masked_raw(raw: msgspec.Raw) -> msgspec.Raw:
    text = bytes(raw)
    return msgspec.Raw(msgspec.json.encode(_masked_json(msgspec.json.decode(text)))) if _may_have_pairs(text) else raw


def _may_have_pairs(text: bytes) -> bool:
    return any(name in text for name in _IN_JSON) or b"\\u" in text


@cache
def parts_of(struct: type[msgspec.Struct]) -> tuple[tuple[str, _Part], ...]:
    """The fields of the struct that may show secrets."""
    return tuple(_parts(struct, frozenset()))


def _parts(struct: type[msgspec.Struct], above: frozenset[type]) -> list[tuple[str, _Part]]:
    found = []
    for field in msgspec.structs.fields(struct):
        types = set(types_in(field.type))
        if field.name in _PAIRS:
            found.append((field.name, _Part.PAIRS))
        elif Any in types or msgspec.Raw in types:
            found.append((field.name, _Part.JSON))
        elif any(_parts(one, above | {struct}) for one in types if _is_struct(one) and one not in above):
            found.append((field.name, _Part.STRUCTS))
    return found


def _is_struct(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)
