"""The JSON Schema of job files, made from the structs of the requests.

The form is draft 7, which the YAML language server knows best. Where a number or a truth value is asked for, a text
with a variable is allowed too.
"""

from __future__ import annotations

import json
from typing import Any

from mainspring.wire.files import FILE_KINDS
from mainspring.wire.json_schemas import Schemas

_SECRET_VALUE = {
    "description": "Where the value is. A file does not have it. Left out: the value that is stored stays.",
    "oneOf": [
        {
            "type": "object",
            "additionalProperties": False,
            "required": [name],
            "properties": {name: {"type": "string", "description": text}},
        }
        for name, text in (
            ("env", "The name of an environment variable of whoever applies the file."),
            ("file", "The path of a file, relative to the job file."),
        )
    ],
}
_VARIABLE = {"type": "string", "pattern": r"\$\{\{"}


def job_file_schema() -> dict[str, Any]:
    """The schema as JSON values."""
    schemas = Schemas()
    for kind in FILE_KINDS.values():
        schemas.of(kind.body)
    definitions = {name: _plain(schema) for name, schema in schemas.components.items()}
    for kind in FILE_KINDS.values():
        body = definitions[kind.body.__name__]
        body["description"] = f"A {kind.noun}. A field that is left out has its default."
        for name in kind.secrets:
            body["properties"][name] = {"$ref": "#/definitions/SecretValue"}
        for name in kind.without:
            body["properties"].pop(name, None)
            body["required"] = [one for one in body.get("required", ()) if one != name]
    definitions["SecretValue"] = _SECRET_VALUE
    sections = {
        kind.section: {
            "type": ["object", "null"],
            "description": f"Each {kind.noun} by its name.",
            "additionalProperties": {"$ref": f"#/definitions/{kind.body.__name__}"},
        }
        for kind in FILE_KINDS.values()
    }
    pairs = {"type": ["object", "null"]}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Mainspring job file",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "owner": {"type": "string", "description": "Who owns what the files have. --prune removes only that."},
            "include": {
                "description": "Further files, relative to this one; * and ** are allowed.",
                "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
            },
            "variables": {**pairs, "description": "Names and values: ${{ name }} stands for the value."},
            "environments": {**pairs, "description": "Values of variables for --env.", "additionalProperties": pairs},
            **sections,
        },
        "definitions": definitions,
    }


def _plain(schema: Any) -> Any:
    """A schema of the API as one of a file."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return {"$ref": schema["$ref"].replace("#/components/schemas/", "#/definitions/")}
    found = {name: one if name in ("default", "examples", "enum") else _plain(one) for name, one in schema.items()}
    if found.get("type") in ("integer", "number", "boolean"):
        return {"anyOf": [found, _VARIABLE]}
    return found


def schema_text() -> str:
    return json.dumps(job_file_schema(), indent=1, ensure_ascii=False) + "\n"
