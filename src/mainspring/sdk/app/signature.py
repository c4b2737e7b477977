"""A task's parameters as a JSON Schema, for the server to check what is submitted; its options go with it."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec import Meta
from msgspec import inspect as kinds

from mainspring.wire.tasks import OPTIONS_KEYWORD

if TYPE_CHECKING:
    from mainspring.sdk.app.task import Task

_TITLE = "Payload"


def payload_schema(task: str, shape: type[msgspec.Struct]) -> dict[str, Any] | None:
    """The schema of what `shape` reads; None when it reads anything, or when its types cannot be put in a schema."""
    try:
        schema = msgspec.json.schema(_spelt_out(shape), schema_hook=_anything)
        open_enums = {info.cls.__name__ for info in _enums(kinds.type_info(shape)) if _takes_more(info.cls)}
    except (TypeError, ValueError, RecursionError):  # the types are the user's
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


def declared(tasks: Iterable[Task[Any, Any]]) -> dict[str, msgspec.Raw]:
    """What a worker declares when it says hello: the schemas and options of those tasks that have some."""
    found = {task.name: _declaration(task) for task in tasks}
    return {name: msgspec.Raw(msgspec.json.encode(schema)) for name, schema in found.items() if schema}


def _declaration(task: Task[Any, Any]) -> dict[str, Any]:
    schema = task.payload_schema or {}
    return schema if task.declared_options is None else {**schema, OPTIONS_KEYWORD: task.declared_options}


def _anything(_kind: type) -> dict[str, Any]:
    return {}


def _spelt_out(shape: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """`shape` with its times marked as such: of its own accord msgspec calls them no more than strings."""
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
    """All enums within a type."""
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
    """Whether the enum makes members of values that are not its own."""
    return "_missing_" in {name for cls in enum.__mro__[:-1] if cls.__module__ != "enum" for name in vars(cls)}
