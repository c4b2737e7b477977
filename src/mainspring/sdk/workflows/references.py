"""References: values of a payload that are known only when the workflow runs.

For type checkers `extract.result["rows"]` has the type of the task's result, so that a step that takes it is checked as
a call is. At run time it is a `Reference`, which records the path and becomes `{"$from": "extract", "path": "rows"}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import msgspec

from mainspring.domain.errors import InvalidInput

FROM, PARAMETER, ITEM, INDEX, TOTAL, LITERAL = "$from", "$parameter", "$item", "$index", "$total", "$literal"
_WITH_PATH = (FROM, ITEM)


class Reference:
    """A value that is not known yet. `reference["rows"]`, `reference[0]` and `reference.rows` refer to a part of it."""

    __slots__ = ("_kind", "_of", "_owner", "_path")

    def __init__(self, kind: str, of: Any, owner: Any = None, path: tuple[str, ...] = ()) -> None:
        self._kind = kind
        self._of = of
        self._owner = owner
        self._path = path

    def __getitem__(self, key: str | int) -> Reference:
        if self._kind not in _WITH_PATH:
            raise TypeError(f"{self!r} cannot be taken apart in the definition of a workflow; the task can do it")
        part = str(key)
        if isinstance(key, bool) or not isinstance(key, str | int) or not part or "." in part:
            raise TypeError(f"{key!r} cannot be part of a path: use the name of a member without a dot, or a number")
        if isinstance(key, int) and key < 0:
            raise TypeError(
                f"{key} cannot be part of a path: items are counted from 0; the task can count from the end"
            )
        return Reference(self._kind, self._of, self._owner, (*self._path, part))

    def __getattr__(self, name: str) -> Reference:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __repr__(self) -> str:
        return f"<reference {msgspec.json.encode(form_of(self)).decode()}>"

    def _not_known(self) -> NoReturn:
        raise TypeError(
            f"{self!r} has no value yet: it is known when the workflow runs. Pass it to a step as it is, and compute "
            "with it in the task."
        )

    def __bool__(self) -> bool:
        self._not_known()

    def __eq__(self, other: object) -> bool:
        """A comparison would always be False."""
        return True if other is self else self._not_known()

    def __hash__(self) -> int:
        return id(self)

    def __contains__(self, _: object) -> bool:
        self._not_known()

    def __iter__(self) -> NoReturn:
        self._not_known()

    def __len__(self) -> int:
        self._not_known()

    def __format__(self, _: str) -> str:
        self._not_known()


def form_of(reference: Reference) -> dict[str, Any]:
    """The reference as the definition of a workflow writes it."""
    path = ".".join(reference._path)
    if reference._kind == ITEM:
        return {ITEM: path}
    return {reference._kind: reference._of, "path": path} if path else {reference._kind: reference._of}


def owner_of(reference: Reference) -> Any:
    """The step whose result it refers to. None for parameters and members."""
    return reference._owner


def with_references(value: Any, seen: Callable[[Reference], None]) -> Any:
    """`value` in plain JSON types, with references in the form of a definition. `seen` is called with each of them.
    Objects that only look like references are marked as literal."""
    if isinstance(value, Reference):
        seen(value)
        return form_of(value)
    if isinstance(value, Mapping):
        inner = {name: with_references(part, seen) for name, part in value.items()}
        return {LITERAL: _without_references(value)} if any(str(name).startswith("$") for name in inner) else inner
    if isinstance(value, list | tuple):
        return [with_references(part, seen) for part in value]

    def other(found: Any) -> Any:
        if isinstance(found, Reference):
            seen(found)
            return form_of(found)
        raise NotImplementedError

    return _plain(value, other)


def _without_references(value: Any) -> Any:
    def refuse(found: Any) -> NoReturn:
        if isinstance(found, Reference):
            raise InvalidInput(
                "an object with a name that begins with $ is passed on as it is, so it cannot contain a reference",
                field="payload",
                hint="put the reference outside of it",
            )
        raise NotImplementedError

    return _plain(value, refuse)


def _plain(value: Any, hook: Callable[[Any], Any]) -> Any:
    try:
        return msgspec.to_builtins(value, enc_hook=hook, str_keys=True)
    except (TypeError, NotImplementedError, msgspec.MsgspecError) as error:
        raise InvalidInput(
            f"the value cannot be encoded as JSON: {error}",
            code="not_json",
            field="payload",
            hint="use numbers, strings, lists, dicts, dataclasses, datetimes or UUIDs",
        ) from None
