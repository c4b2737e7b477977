"""The statement of a sql task, as a request gives it and as it is stored, shown and sent to workers; and its result."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.kernel.config import MAX_RESULT_BYTES

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

MOST_ROWS = 1000
MOST_BYTES = MAX_RESULT_BYTES - 4096  # of the rows; the rest of the result is small
_NUMBERS = frozenset({20, 21, 23, 26, 700, 701})  # bigint, smallint, integer, oid, real, double precision
_BOOLEAN, _JSON = 16, frozenset({114, 3802})


class SqlCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A statement for a PostgreSQL. `connection` is a name that workers know; the address never leaves them.
    `parameters` are the values of $1, $2, and so on. Without a `transaction` statements such as VACUUM work."""

    connection: str
    statement: str
    parameters: list[Any] = []
    transaction: bool = True


class SqlCallIn(SqlCall, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """This struct as part of a request, in which unknown fields are forbidden."""


CALL_IN, CALL = SqlCallIn, SqlCall


def in_words(call: SqlCall) -> str:
    return " ".join(call.statement.split())


class Rows:
    """The rows of a statement, up to the bound. The rest is read and counted: the statement runs to its end."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.count = 0
        self.status = ""
        self.truncated = False
        self._size = 0
        self._columns: list[tuple[str, int]] | None = None

    def add(self, part: PGresult) -> None:
        if part.command_status:
            self.status = part.command_status.decode()
        if self._columns is None and part.nfields:
            self._columns = _columns(part)
        self.count += part.ntuples
        for row in range(part.ntuples):
            if self.truncated:
                return
            self._keep(part, row)

    def _keep(self, part: PGresult, row: int) -> None:
        values = [part.get_value(row, place) for place in range(part.nfields)]
        self._size += sum(len(value) for value in values if value is not None)
        if len(self.rows) >= MOST_ROWS or self._size > MOST_BYTES:
            self.truncated = True
            return
        made = {name: _value(value, kind) for (name, kind), value in zip(self._columns or (), values, strict=True)}
        self._size += len(msgspec.json.encode(made)) - sum(len(value) for value in values if value is not None)
        if self._size > MOST_BYTES:
            self.truncated = True
        else:
            self.rows.append(made)

    def encoded(self) -> bytes:
        result: dict[str, Any] = {"status": self.status}
        if self._columns is not None:
            result |= {"rows": self.rows, "row_count": self.count}
        if self.truncated:
            result["truncated"] = True
        return msgspec.json.encode(result)


def as_text(value: Any) -> bytes | None:
    """A value as text, whose type the statement decides. Lists and objects are JSON."""
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


def _columns(part: PGresult) -> list[tuple[str, int]]:
    """Name and type of each column. A name that occurs twice gets a number."""
    columns: dict[str, int] = {}
    for place in range(part.nfields):
        name = given = (part.fname(place) or b"").decode("utf-8", "replace")
        number = 1
        while name in columns:
            number += 1
            name = f"{given}_{number}"
        columns[name] = part.ftype(place)
    return list(columns.items())


def _value(value: bytes | None, kind: int) -> Any:
    """A value as JSON, if JSON has its type. Otherwise the text that PostgreSQL writes."""
    if value is None:
        return None
    if kind == _BOOLEAN:
        return value == b"t"
    if kind in _NUMBERS or (kind in _JSON and b"\\u0000" not in value):  # a result cannot have the character NUL
        with suppress(msgspec.DecodeError):  # NaN and Infinity are text
            return msgspec.json.decode(value)
    return value.decode("utf-8", "replace")
