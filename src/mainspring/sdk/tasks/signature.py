"""The parameters of a task as a JSON Schema, with which the server checks payloads."""

from __future__ import annotations

import types
from collections.abc import Iterator
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec import Meta
from msgspec import inspect as kinds

_TITLE = "Payload"


def payload_schema(task: str, shape: type[msgspec.Struct]) -> dict[str, Any] | None:
    """The schema of `shape`. None if it accepts anything, or if its types have no schema."""
    try:
        schema = msgspec.json.schema(_spelt_out(shape), schema_hook=_anything)
        open_enums = {info.cls.__name__ for info in _enums(kinds.type_info(shape)) if _takes_more(info.cls)}
    except (TypeError, ValueError, RecursionError):  # the types are defined by the user
        return None
    definitions: dict[str, Any] = schema["$defs"]
    payload: dict[str, Any] = definitions.pop(schema["$ref"].rpartition("/")[2])
    payload["title"] = task
    if not payload["properties"] and "additionalProperties" not in payload:
        return None
    for definition in definitions.values():
        if definition.get("title") in open_enums:
            definition.pop("enum", None)
    return {**payload, "$defs": definitions} if definitions else payload


def _anything(_kind: type) -> dict[str, Any]:
    return {}


def _spelt_out(shape: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """`shape` with its time types marked, because msgspec describes them as plain strings."""
    fields = [
        (field.name, _marked(field.type), *(() if field.required else (msgspec.UNSET,)))
        for field in msgspec.structs.fields(shape)
    ]
    return msgspec.defstruct(
        _TITLE, fields, kw_only=True, forbid_unknown_fields=shape.__struct_config__.forbid_unknown_fields
    )


def _marked(kind: Any) -> Any:
    if kind is datetime:
        return Annotated[datetime, Meta(extra_json_schema={"format": "date-time"})]
    if get_origin(kind) in (Union, types.UnionType):
        return Union[tuple(_marked(member) for member in get_args(kind))]  # noqa: UP007 - at run time
    return kind


def _enums(info: kinds.Type, seen: frozenset[Any] = frozenset()) -> Iterator[kinds.EnumType]:
    """All enums inside a type."""
    if isinstance(info, kinds.EnumType):
        yield info
    own = getattr(info, "cls", None)
    if own is not None and own in seen:
        return
    for name in info.__struct_fields__:
        value = getattr(info, name)
        for part in value if isinstance(value, tuple) else (value,):
            inner = part.type if isinstance(part, kinds.Field) else part
            if isinstance(inner, kinds.Type):
                yield from _enums(inner, seen | {own})


def _takes_more(enum: type[Enum]) -> bool:
    """Whether the enum accepts values that are not those of its members."""
    return "_missing_" in {name for cls in enum.__mro__[:-1] if cls.__module__ != "enum" for name in vars(cls)}
