"""Adds the plain fields of the table of fields to structs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast

import msgspec
from msgspec import UNSET

from mainspring.wire.fields import PLAIN_FIELDS, Field

S = TypeVar("S", bound=msgspec.Struct)
Part = Literal["given", "changed", "value"]

_OPTIONS = (
    "array_like", "cache_hash", "dict", "eq", "forbid_unknown_fields", "frozen", "gc", "omit_defaults", "order",
    "repr_omit_defaults", "tag", "tag_field", "weakref",
)  # fmt: skip


def with_plain_fields(part: Part, *, after: str) -> Callable[[type[S]], type[S]]:
    """A decorator that inserts the plain fields after the field `after`.

    part: "given" for requests, with the default None; "changed" for patches, with the default UNSET; "value" for
    structs that are stored or shown, with the default None.
    """

    def extend(struct: type[S]) -> type[S]:
        members: list[Any] = []
        names, defaults = struct.__struct_fields__, struct.__struct_defaults__
        required = len(names) - len(defaults)
        for index, name in enumerate(names):
            default = () if index < required else (defaults[index - required],)
            members.append((name, struct.__annotations__[name], *default))
            if name == after:
                members.extend(_member(field, part) for field in PLAIN_FIELDS)
        made = msgspec.defstruct(
            struct.__name__,
            members,
            bases=struct.__bases__,
            module=struct.__module__,
            namespace={"__doc__": struct.__doc__, "__qualname__": struct.__qualname__},
            **{option: getattr(struct.__struct_config__, option) for option in _OPTIONS},
        )
        return cast(type[S], made)

    return extend


def _member(field: Field, part: Part) -> tuple[str, str, Any]:
    if part == "changed":
        return field.name, f"{field.kind.wire} | UnsetType | None", UNSET
    return field.name, f"{field.kind.wire if part == 'given' else field.kind.stored} | None", None
