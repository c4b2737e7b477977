"""Adds the plain fields of the table of fields, and the fields of the kinds of task, to structs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType

from mainspring.kinds.registry import TaskKind, task_kinds
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
    return _with([_member(field, part) for field in PLAIN_FIELDS], after)


def with_kind_fields(part: Part, *, after: str) -> Callable[[type[S]], type[S]]:
    """A decorator that inserts the fields of the kinds of task. With the part "value" only of those whose call is
    stored in the setup of a run."""
    kinds = [kind for kind in task_kinds() if kind.in_setup or part != "value"]
    return _with([_kind_member(kind, part) for kind in kinds], after)


def _with(added: Sequence[tuple[str, Any, Any]], after: str) -> Callable[[type[S]], type[S]]:
    def extend(struct: type[S]) -> type[S]:
        members: list[Any] = []
        names, defaults = struct.__struct_fields__, struct.__struct_defaults__
        required = len(names) - len(defaults)
        for index, name in enumerate(names):
            default = () if index < required else (defaults[index - required],)
            members.append((name, struct.__annotations__[name], *default))
            if name == after:
                members.extend(added)
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


def _kind_member(kind: TaskKind, part: Part) -> tuple[str, Any, Any]:
    types = kind.part("call")
    if part == "changed":
        return kind.field, types.CALL_IN | UnsetType, UNSET
    return kind.field, (types.CALL_IN if part == "given" else types.CALL) | None, None
