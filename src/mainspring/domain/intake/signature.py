"""The signature of a task: checks payloads against the JSON Schema that its workers declare.

Decoding a payload into a msgspec type takes less than a microsecond. A JSON Schema library takes tens of microseconds.
So a schema is translated once into a msgspec type. Keywords that the translation does not know are ignored: the worker
checks payloads again, and a valid submission is never refused. Two keywords are ignored on purpose: patterns, because
an expression that backtracks would block the server; upper bounds on sets, because `["a", "a"]` is a set of one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, Union
from uuid import UUID

import msgspec
from msgspec import Meta

from mainspring.domain.errors import InvalidInput

_DEEPEST = 32
_encode = msgspec.json.Encoder().encode
_FORMATS: dict[str, Any] = {
    "date-time": datetime,
    "date": date,
    "duration": timedelta,
    "uuid": UUID,
    "decimal": Decimal,
}
_NUMBER_BOUNDS = {
    "minimum": "ge", "exclusiveMinimum": "gt", "maximum": "le", "exclusiveMaximum": "lt", "multipleOf": "multiple_of",
}  # fmt: skip
_TEXT_BOUNDS = {"minLength": "min_length", "maxLength": "max_length"}
_ARRAY_BOUNDS = {"minItems": "min_length", "maxItems": "max_length"}
_MISSING = re.compile(r"Object missing required field `([^`]*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")
_PATH = re.compile(r" - at `\$?([^`]*)`$")
_SHOWN_NAMES = 12
_NEAR = 200  # parameters that a wrong name is compared with
# msgspec raises these for types without a decoder.
_UNBUILDABLE = (TypeError, ValueError, OverflowError, NotImplementedError, RecursionError)
_LONGEST_NAME = 100
MOST_PARAMETERS = 256  # of a task, and of each object in its payload
_MOST_BRANCHES = 256  # of a union; a larger one is not checked here
_SCHEMAS_BY_NAME = frozenset({"properties", "$defs", "patternProperties"})
# What these keywords contain is data, not a schema.
_DATA = frozenset({"const", "default", "enum", "example", "examples"})

Schema = Mapping[str, Any]


class Signature:
    """The parameters of one task. `check` raises InvalidInput (bad_payload) that names the parameter."""

    __slots__ = ("_choices", "_decode", "_optional", "_required", "_task")

    def __init__(self, task: str, schema: Schema) -> None:
        self._task = task
        self._decode = msgspec.json.Decoder(_Translation(schema).whole()).decode
        translation = _Translation(schema)
        resolved = translation.resolved(schema)
        properties, required = _properties(resolved), _names(resolved.get("required"))
        self._required = [name for name in properties if name in required]
        self._optional = [name for name in properties if name not in required]
        schemas = {name: translation.resolved(of) for name, of in properties.items() if isinstance(of, dict)}
        self._choices = {name: _choices(of) for name, of in schemas.items()}

    def check(self, payload: str | None) -> None:
        """Raise InvalidInput if the payload (JSON text; None is an empty one) does not match."""
        try:
            self._decode("{}" if payload is None else payload)
        except msgspec.MsgspecError as error:
            raise self._error_of(str(error)) from None
        except RecursionError:
            return  # nested too deep for this check; the worker checks it

    def check_known(self, payload: Mapping[str, Any], late: Collection[str]) -> None:
        """Check a payload in which the values of the parameters `late` are not known yet."""
        for name in sorted(late):
            try:
                self._decode(_encode({name: None}))
            except msgspec.MsgspecError as error:
                if _UNKNOWN.match(str(error)) and not _PATH.search(str(error)):
                    raise self._error_of(str(error)) from None
        try:
            self.check(_encode({name: value for name, value in payload.items() if name not in late}).decode())
        except InvalidInput as error:
            if error.field not in {f"payload.{name}" for name in late}:
                raise
        for name in self._required:
            if name not in payload and name not in late:  # one that is late may have been reported in its place
                raise self._refusal(f"{self._task} needs the parameter {name}", name)

    def _error_of(self, text: str) -> InvalidInput:
        found = _PATH.search(text)
        path = found.group(1).lstrip(".") if found else ""
        words = text[: found.start()] if found else text
        if missing := _MISSING.search(words):
            name = _joined(path, missing.group(1))
            return self._refusal(f"{self._task} needs the parameter {name}", name)
        if unknown := _UNKNOWN.search(words):
            last = unknown.group(1)[:_LONGEST_NAME]
            near = difflib.get_close_matches(last, [*self._required, *self._optional][:_NEAR], n=1) if not path else []
            name = _joined(path, last)
            hint = f"did you mean {near[0]}?" if near else None
            return self._refusal(f"{self._task} has no parameter {name}", name, hint=hint)
        words = words.replace("`", "")
        expected = words.removeprefix("Expected ").split(", got ")[0] if words.startswith("Expected ") else None
        expected = expected or self._choices.get(path)
        what = f"the parameter {path}" if path else "the payload"
        return self._refusal(f"{what} does not fit {self._task}: {words[:1].lower()}{words[1:]}", path, expected)

    def _refusal(self, detail: str, path: str, expected: str | None = None, hint: str | None = None) -> InvalidInput:
        return InvalidInput(
            detail,
            code="bad_payload",
            field=f"payload.{path}" if path else "payload",
            expected=expected,
            hint=hint or self._takes(),
        )

    def _takes(self) -> str:
        if not self._required and not self._optional:
            return f"the task {self._task} takes no parameters"
        needs = ", ".join(self._required[:_SHOWN_NAMES])
        may = ", ".join(self._optional[:_SHOWN_NAMES])
        if not needs:
            return f"the task {self._task} takes the optional {may}"
        return f"the task {self._task} takes {needs}" + (f" and the optional {may}" if may else "")


def read_signature(task: str, schema: object) -> Signature | None:
    """The signature for `schema`. None if it is not a schema that can be translated."""
    if not isinstance(schema, dict):
        return None
    try:
        return Signature(task, schema)
    except _UNBUILDABLE:
        return None


def most_parameters(schema: object) -> int:
    """The number of parameters of the object that has most of them, at any depth."""
    most, rest = 0, [schema]
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            most = max(most, len(_properties(one).keys() | set(_names(one.get("required")))))
            for name, value in one.items():
                if name in _SCHEMAS_BY_NAME and isinstance(value, dict):
                    rest += value.values()
                elif name not in _DATA:
                    rest.append(value)
        elif isinstance(one, list):
            rest += one
    return most


class _Translation:
    """Translates JSON Schema into a msgspec type. An ignored keyword makes the check less strict, never stricter."""

    def __init__(self, schema: Schema) -> None:
        self._root = schema
        self._made: dict[tuple[str, str | None], Any] = {}
        self._under_way: set[str] = set()

    def whole(self) -> Any:
        return self._type(self._root, 0)

    def resolved(self, schema: Schema) -> Schema:
        """`schema`, or what it refers to."""
        for _ in range(_DEEPEST):
            name = _reference(schema)
            if name is None:
                return schema
            schema = self._definition(name)
        return {}

    def _definition(self, name: str) -> Schema:
        definitions = self._root.get("$defs")
        found = definitions.get(name) if isinstance(definitions, dict) else None
        return found if isinstance(found, dict) else {}

    def _type(self, schema: object, depth: int) -> Any:
        if not isinstance(schema, dict) or depth > _DEEPEST:
            return Any
        if "$ref" in schema:
            return self._referred(schema, depth)
        if "enum" in schema or "const" in schema:
            return _literal(schema["enum"] if "enum" in schema else [schema["const"]])
        for either in ("anyOf", "oneOf"):
            if isinstance(schema.get(either), list):
                return self._union(schema, schema[either], depth)
        kind = schema.get("type")
        if isinstance(kind, list):
            few = len(kind) <= _MOST_BRANCHES
            return _one_of([self._plain(schema, one, depth) for one in kind]) if few else Any
        return self._plain(schema, kind, depth)

    def _referred(self, schema: Schema, depth: int) -> Any:
        name = _reference(schema)
        if name is None or name in self._under_way:  # a recursive type is checked to its first level
            return Any
        if (name, None) not in self._made:
            self._under_way.add(name)
            try:
                self._made[name, None] = self._type(self._definition(name), depth + 1)
            finally:
                self._under_way.discard(name)
        return self._made[name, None]

    def _plain(self, schema: Schema, kind: object, depth: int) -> Any:
        match kind:
            case "null":
                return None
            case "boolean":
                return bool
            case "integer":
                return _bounded(int, schema, _NUMBER_BOUNDS)
            case "number":
                return _bounded(float, schema, _NUMBER_BOUNDS)
            case "string":
                return _text(schema)
            case "array":
                return self._array(schema, depth)
            case "object":
                return self._object(schema, depth)
            case _:
                return Any

    def _array(self, schema: Schema, depth: int) -> Any:
        first = schema.get("prefixItems")
        if isinstance(first, list):
            if 0 < len(first) <= _MOST_BRANCHES and schema.get("minItems") == schema.get("maxItems") == len(first):
                return tuple[tuple(self._type(item, depth + 1) for item in first)]  # type: ignore[misc]
            return _bounded(list[Any], schema, _ARRAY_BOUNDS)
        kind: Any = list[self._type(schema.get("items"), depth + 1)]  # type: ignore[misc]
        if schema.get("uniqueItems"):
            return kind  # duplicates count once, so the number of items does not matter
        return _bounded(kind, schema, _ARRAY_BOUNDS)

    def _object(self, schema: Schema, depth: int, tag: tuple[str, Any] | None = None) -> Any:
        properties, required = _properties(schema), _names(schema.get("required"))
        closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
        if not properties and not closed and not required:
            return dict[str, self._type(schema.get("additionalProperties"), depth + 1)]  # type: ignore[misc]
        fields: list[Any] = []
        names: dict[str, str] = {}
        for name in [*properties, *(name for name in required if name not in properties)]:
            if tag is not None and name == tag[0]:
                continue
            names[ours := f"f{len(fields)}"] = name
            kind = self._type(properties.get(name), depth + 1)
            # msgspec declares the tag of a single struct as required, but does not require it.
            needed = name in required and not _one_value(properties.get(name))
            fields.append((ours, kind) if needed else (ours, kind, None))
        tagged = {} if tag is None else {"tag_field": tag[0], "tag": tag[1]}
        return msgspec.defstruct(
            "Payload", fields, kw_only=True, rename=names, forbid_unknown_fields=closed, gc=False, **tagged
        )

    def _union(self, schema: Schema, branches: list[Any], depth: int) -> Any:
        if len(branches) > _MOST_BRANCHES:
            return Any
        discriminator = schema.get("discriminator")
        field = discriminator.get("propertyName") if isinstance(discriminator, dict) else None
        if isinstance(field, str):
            return _one_of([self._tagged(branch, field, depth) for branch in branches])
        return _one_of([self._type(branch, depth + 1) for branch in branches])

    def _tagged(self, branch: object, field: str, depth: int) -> Any:
        if not isinstance(branch, dict):
            return Any
        name, schema = _reference(branch), self.resolved(branch)
        tag = _one_value(_properties(schema).get(field))
        if not tag or schema.get("type") != "object" or (name is not None and name in self._under_way):
            return Any
        if name is None:
            return self._object(schema, depth + 1, (field, tag[0]))
        if (name, field) not in self._made:
            self._under_way.add(name)
            try:
                self._made[name, field] = self._object(schema, depth + 1, (field, tag[0]))
            finally:
                self._under_way.discard(name)
        return self._made[name, field]


def _reference(schema: Schema) -> str | None:
    target = schema.get("$ref")
    return target.removeprefix("#/$defs/") if isinstance(target, str) and target.startswith("#/$defs/") else None


def _properties(schema: Schema) -> dict[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _choices(schema: Schema) -> str | None:
    """The values of an enum parameter as text. None if there are many."""
    values = schema.get("enum")
    return " or ".join(map(str, values)) if isinstance(values, list) and len(values) <= _SHOWN_NAMES else None


def _names(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _one_value(schema: object) -> list[Any]:
    """The only value that `schema` allows, in a list. Empty if it allows more."""
    if not isinstance(schema, dict):
        return []
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return values if isinstance(values, list) and len(values) == 1 and type(values[0]) in (int, str) else []


def _literal(values: object) -> Any:
    if not isinstance(values, list) or not values or any(type(value) not in (int, str, type(None)) for value in values):
        return Any
    return Literal[tuple(values)]


def _text(schema: Schema) -> Any:
    if schema.get("contentEncoding") == "base64":
        return bytes
    form = schema.get("format")
    if isinstance(form, str) and form in _FORMATS:
        return _FORMATS[form]
    return _bounded(str, schema, _TEXT_BOUNDS)


def _bounded(kind: Any, schema: Schema, names: Mapping[str, str]) -> Any:
    bounds: dict[str, Any] = {ours: schema[theirs] for theirs, ours in names.items() if theirs in schema}
    if not bounds:
        return kind
    try:
        bounded = Annotated[kind, Meta(**bounds)]
        msgspec.json.Decoder(bounded)
    except _UNBUILDABLE:
        return kind
    return bounded


def _one_of(kinds: list[Any]) -> Any:
    if not kinds or Any in kinds:
        return Any
    union: Any = Union[tuple(kinds)]  # noqa: UP007 - at run time
    try:
        msgspec.json.Decoder(union)
    except _UNBUILDABLE:  # such as two types that the decoder cannot tell apart
        return Any
    return union


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
