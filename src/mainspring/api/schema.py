"""Structs in the OpenAPI schema. Handles raw JSON and unset fields, which the framework's plugin does not support."""

from __future__ import annotations

import types
from functools import reduce
from operator import or_
from typing import Any, Union, get_args, get_origin

import msgspec
from litestar.openapi.spec import Schema
from litestar.plugins import OpenAPISchemaPlugin
from litestar.types import Empty
from litestar.typing import FieldDefinition


class StructSchema(OpenAPISchemaPlugin):
    """Runs before the framework's plugin, which fails on a default of `msgspec.Raw` because it cannot be hashed."""

    def is_plugin_supported_field(self, field_definition: FieldDefinition) -> bool:
        return not field_definition.is_union and field_definition.is_subclass_of(msgspec.Struct)

    def to_openapi_schema(self, field_definition: FieldDefinition, schema_creator: Any) -> Schema:
        hints = field_definition.get_type_hints(include_extras=True, resolve_generics=True)
        fields = msgspec.structs.fields(field_definition.type_)
        schema: Schema = schema_creator.create_component_schema(
            field_definition,
            required=sorted(field.encode_name for field in fields if field.required),
            property_fields={
                field.encode_name: FieldDefinition.from_annotation(
                    annotation=_as_sent(hints[field.name]), name=field.encode_name, default=_default(field.default)
                )
                for field in fields
            },
        )
        return schema


def _as_sent(annotation: Any) -> Any:
    """The annotation as clients see it: raw JSON is any value, and UNSET is not an alternative."""
    if annotation is msgspec.Raw:
        return Any
    if get_origin(annotation) in (Union, types.UnionType):
        parts = [part for part in get_args(annotation) if part is not msgspec.UnsetType]
        if float in parts and int in parts:
            parts.remove(int)  # an integer is also a number, and must match only one alternative
        return reduce(or_, parts)
    return annotation


def _default(value: Any) -> Any:
    return Empty if value is msgspec.NODEFAULT or isinstance(value, msgspec.UnsetType | msgspec.Raw) else value
