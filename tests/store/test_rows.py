"""Rows are built by position, so every query must have the columns of its struct: names, order and types."""

from __future__ import annotations

import importlib
import pkgutil
import types
import typing
from datetime import date, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

import mainspring
import mainspring.store
from mainspring.store.queries import load, load_without_payloads
from mainspring.store.rows import ROW_QUERIES, PageRow, RowQuery

SOURCE = Path(mainspring.__file__).parent
MODULES = [
    importlib.import_module(f"mainspring.store.{module.name}")
    for module in pkgutil.iter_modules(mainspring.store.__path__)
]
FILES = [file.stem for file in (SOURCE / "store" / "sql").glob("*.sql") if file.stem != "fragments"]
NAMES = {sql: f"{file}:{name}" for file in FILES for name, sql in load(file).items()}
WITHOUT_PAYLOADS = {
    sql: f"{file}:{name}, without payloads" for file in FILES for name, sql in load_without_payloads(file).items()
}
PYTHON_TYPES: dict[str, object] = {
    "int2": int,
    "int4": int,
    "int8": int,
    "xid": int,
    "float4": float,
    "float8": float,
    "bool": bool,
    "text": str,
    "bytea": bytes,
    "uuid": UUID,
    "date": date,
    "timestamptz": datetime,
    "text[]": list[str],
    "int4[]": list[int],
    "int8[]": list[int],
    "bool[]": list[bool],
    "uuid[]": list[UUID],
    "timestamptz[]": list[datetime],
}


def name_of(query: RowQuery[Any]) -> str:
    return NAMES.get(query.sql) or WITHOUT_PAYLOADS[query.sql]


def python_type(annotation: Any) -> object:
    """The type of a field without None and without NewType."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        [annotation] = [part for part in typing.get_args(annotation) if part is not type(None)]
    if typing.get_origin(annotation) is list:
        [item] = typing.get_args(annotation)
        return list[getattr(item, "__supertype__", item)]  # type: ignore[misc]
    return getattr(annotation, "__supertype__", annotation)


def test_there_is_something_to_compare() -> None:
    assert len(ROW_QUERIES) > 30
    assert {"history:live_run", "jobs:get_job", "dead_letters:page", "fire:due_scan"} <= set(map(name_of, ROW_QUERIES))


@pytest.mark.anyio
async def test_a_query_has_the_columns_of_its_row(connection: asyncpg.Connection) -> None:
    different = {}
    for query in ROW_QUERIES:
        columns = (await connection.prepare(query.sql)).get_attributes()
        hints = typing.get_type_hints(query.row)
        found = [(column.name, PYTHON_TYPES[column.type.name]) for column in columns]
        wanted = [(field, python_type(hints[field])) for field in query.row.__struct_fields__]
        if found != wanted:
            different[name_of(query)] = {"found": found, "wanted": wanted}
    assert different == {}


def test_a_row_never_changes() -> None:
    assert [name_of(query) for query in ROW_QUERIES if not query.row.__struct_config__.frozen] == []


def test_a_page_counts_every_text_that_may_be_large() -> None:
    """A page is cut by the weight of its rows. The weight includes every text that a client can make large."""
    large = {"payload_text", "spec_text", "result_text", "error", "last_error"}
    pages = {query.row for query in ROW_QUERIES if issubclass(query.row, PageRow)}
    assert pages
    for row in pages:
        texts = [field for field in row.__struct_fields__ if field in large]
        values: dict[str, Any] = dict.fromkeys(row.__struct_fields__)
        assert row(**{**values, **dict.fromkeys(texts, "x" * 100)}).weight == 100 * len(texts), row.__name__
        assert row(**values).weight == 0, row.__name__


# The run lifecycle and the exchange read narrow records on the hot path.
HOT_PATH = ("operations/exchange/", "operations/lifecycle/", "operations/control/amend.py")


def test_records_stay_in_the_store() -> None:
    """Above the store, rows are structs whose attributes mypy knows."""
    for file in SOURCE.rglob("*.py"):
        path = file.relative_to(SOURCE).as_posix()
        if not path.startswith(("store/", *HOT_PATH)):
            assert not any(
                line.startswith("from mainspring.store.pool import") and "Record" in line
                for line in file.read_text(encoding="utf-8").splitlines()
            ), path
