"""JSON Schemas of types. They come from what the decoder itself knows about a type, so that both agree.

msgspec can make them too, but not for fields whose default is raw JSON, nor as named enums.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import NODEFAULT, UNSET, inspect

from mainspring.wire.states import NAMED

REF = "#/components/schemas/{name}"
_BOUNDS = {
    "gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum", "pattern": "pattern",
}  # fmt: skip


class Schemas:
    """Makes schemas. `components` collects the structs and enums that they refer to."""

    def __init__(self) -> None:
        self.components: dict[str, Any] = {}
        self._structs: dict[str, type] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        """The schema of a type."""
        return self._schema(inspect.type_info(kind))

    def _schema(self, info: Any) -> dict[str, Any]:
        match info:
            case inspect.Metadata():
                return self._described(info)
            case inspect.NoneType():
                return {"type": "null"}
            case inspect.BoolType():
                return {"type": "boolean"}
            case inspect.IntType():
                return {"type": "integer", **_bounds(info)}
            case inspect.FloatType():
                return {"type": "number", **_bounds(info)}
            case inspect.StrType():
                return {"type": "string", **_bounds(info), **_lengths(info, "Length")}
            case inspect.BytesType():
                return {"type": "string", "contentEncoding": "base64"}
            case inspect.DateTimeType():
                return {"type": "string", "format": "date-time"}
            case inspect.UUIDType():
                return {"type": "string", "format": "uuid"}
            case inspect.LiteralType():
                return {"enum": list(info.values)}
            case inspect.ListType():
                return {"type": "array", "items": self._schema(info.item_type), **_lengths(info, "Items")}
            case inspect.TupleType():
                return self._tuple([self._schema(part) for part in info.item_types], len(info.item_types))
            case inspect.DictType():
                return {"type": "object", "additionalProperties": self._schema(info.value_type)}
            case inspect.UnionType():
                return self._one_of(info.types)
            case inspect.StructType():
                return self._struct(info)
            case inspect.AnyType() | inspect.RawType():
                return {}
            case _:
                raise TypeError(f"the document has no schema for {info}")

    def _described(self, info: inspect.Metadata) -> dict[str, Any]:
        schema = {**self._schema(info.type), **(info.extra_json_schema or {})}
        name = schema.pop(NAMED, None)
        if name is None:
            return schema
        if self.components.setdefault(name, schema) != schema:
            raise ValueError(f"two schemas are called {name}")
        return {"$ref": REF.format(name=name)}

    def _one_of(self, kinds: Iterable[Any]) -> dict[str, Any]:
        schemas = [self._schema(kind) for kind in kinds]
        if {} in schemas:
            return {}
        if any(schema.get("type") == "number" for schema in schemas):  # a number may be an integer
            schemas = [schema for schema in schemas if schema.get("type") != "integer"]
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}

    def _struct(self, info: inspect.StructType) -> dict[str, Any]:
        name = info.cls.__name__
        known = self._structs.setdefault(name, info.cls)
        if known is not info.cls:
            raise ValueError(f"two structs are called {name}")
        if name not in self.components:
            self.components[name] = {}  # a struct may contain itself
            self.components[name] = self._members(info)
        return {"$ref": REF.format(name=name)}

    def _members(self, info: inspect.StructType) -> dict[str, Any]:
        config = info.cls.__struct_config__
        words = {"description": " ".join(info.cls.__doc__.split())} if info.cls.__doc__ else {}
        if info.array_like:
            least = sum(field.required for field in info.fields)
            return {**self._tuple([self._schema(field.type) for field in info.fields], least), **words}
        # An answer has all its fields, also those with a default, unless the encoder leaves out defaults.
        complete = not config.omit_defaults and not info.forbid_unknown_fields
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {field.encode_name: self._field(field) for field in info.fields},
            "required": [
                field.encode_name for field in info.fields if field.required or (complete and not _may_be_unset(field))
            ],
            **words,
        }
        if info.forbid_unknown_fields:
            schema["additionalProperties"] = False
        return schema

    def _field(self, field: inspect.Field) -> dict[str, Any]:
        schema = self._schema(field.type)
        default = field.default
        if default is NODEFAULT or default is UNSET or isinstance(default, msgspec.Raw) or "$ref" in schema:
            return schema
        return schema if default is None else {**schema, "default": default}

    @staticmethod
    def _tuple(items: list[dict[str, Any]], least: int) -> dict[str, Any]:
        return {"type": "array", "prefixItems": items, "minItems": least, "maxItems": len(items)}


def _bounds(info: Any) -> dict[str, Any]:
    found = {name: getattr(info, ours, None) for ours, name in _BOUNDS.items()}
    return {name: bound for name, bound in found.items() if bound is not None}


def _lengths(info: Any, of: str) -> dict[str, int]:
    found = {f"min{of}": info.min_length, f"max{of}": info.max_length}
    return {name: length for name, length in found.items() if length is not None}


def _may_be_unset(field: inspect.Field) -> bool:
    """Whether an answer leaves the field out if it has the default UNSET, which msgspec shows as no default."""
    return not field.required and field.default is NODEFAULT and field.default_factory is NODEFAULT
