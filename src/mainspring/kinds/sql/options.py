"""The options of a sql task on the command line, and the connections of a worker."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mainspring.kinds.option_values import value_of
from mainspring.kinds.registry import KindOptions, Option

CONNECTION_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\Z")
_PANEL = "SQL statement"
_FORM = "such as warehouse=/etc/mainspring/warehouse.url,queues=reports+billing,tenants=1+7"


@dataclass(frozen=True, slots=True)
class NamedConnection:
    """A database that a worker may use. file: has its URL, and is read for each session. queues, tenants: whose runs
    may use it; None for those of all that the worker serves. A worker of all tenants needs `tenants`."""

    name: str
    file: Path
    queues: frozenset[str] | None = None
    tenants: frozenset[int] | None = None

    def url(self) -> str:
        """Raises OSError or ValueError, which do not say what is in the file."""
        try:
            return self.file.read_text(encoding="utf-8").strip()
        except UnicodeDecodeError:
            raise ValueError("it is not text") from None


def read_connections(given: Iterable[str]) -> dict[str, NamedConnection]:
    """The connections of --connection NAME=FILE[,queues=A+B][,tenants=1+2]. Raises InvalidInput."""
    found: dict[str, NamedConnection] = {}
    for text in given:
        first, *rules = text.split(",")
        name, equals, file = (part.strip() for part in first.partition("="))
        if not equals or not file or not CONNECTION_NAME.match(name):
            raise _wrong(f"{text!r} is not NAME=FILE")
        if name in found:
            raise _wrong(f"{name} is given twice")
        allowed: dict[str, Any] = {}
        for rule in rules:
            key, _, value = (part.strip() for part in rule.partition("="))
            words = frozenset(word.strip() for word in value.split("+") if word.strip())
            if key not in ("queues", "tenants") or key in allowed or not words:
                raise _wrong(f"{rule.strip()!r} is neither queues=A+B nor tenants=1+2")
            if key == "tenants" and not all(word.isdecimal() for word in words):
                raise _wrong("a tenant is named by its number, which `mainspring tenant list` shows")
            allowed[key] = words if key == "queues" else frozenset(map(int, words))
        found[name] = NamedConnection(name, Path(file).absolute(), **allowed)
    return found


def _wrong(message: str) -> Exception:
    from mainspring.domain.errors import InvalidInput

    return InvalidInput(f"connection: {message}", field="connection", hint=_FORM)


def _check_worker(given: Mapping[str, Any]) -> list[Path]:
    from importlib.util import find_spec

    from mainspring.domain.errors import InvalidInput

    connections = read_connections(given.get("connection") or ())
    if connections and find_spec("psycopg") is None:
        raise InvalidInput(
            "--connection needs psycopg, which is not installed", field="connection",
            hint="pip install 'mainspring[sql]'",
        )  # fmt: skip
    for one in connections.values():
        try:
            problem = None if one.url() else "it is empty"
        except (OSError, ValueError) as error:
            problem = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        if problem is not None:
            raise InvalidInput(
                f"connection: the file of {one.name} cannot be read: {problem}", field="connection",
                hint="it has one line: postgresql://user:password@host/database",
            )  # fmt: skip
    return [one.file for one in connections.values()]


def _call(given: Mapping[str, Any]) -> dict[str, Any] | None:
    from mainspring.domain.errors import InvalidInput

    parts = given["connection"], given["parameter"], given["no_transaction"]
    if given["sql"] is None:
        if any(parts):
            raise InvalidInput(
                "--connection, --parameter and --no-transaction need --sql", field="sql", hint="give --sql STATEMENT"
            )
        return None
    if given["connection"] is None:
        raise InvalidInput("--sql needs --connection", field="sql.connection", hint="such as --connection warehouse")
    call: dict[str, Any] = {"connection": given["connection"], "statement": given["sql"]}
    if given["parameter"]:
        call["parameters"] = [value_of(text) for text in given["parameter"]]
    if given["no_transaction"]:
        call["transaction"] = False
    return call


OPTIONS = KindOptions(
    of_a_job=(
        Option("sql", "--sql", "STATEMENT", "Run this statement on a PostgreSQL.", panel=_PANEL),
        Option("connection", "--connection", "NAME", "A connection of the workers: warehouse.", panel=_PANEL),
        Option(
            "parameter", "--parameter", "VALUE", "Value of $1, $2, and so on: JSON or text; can be repeated.",
            repeated=True, panel=_PANEL,
        ),
        Option("no_transaction", "--no-transaction", "", "For statements such as VACUUM.", switch=True, panel=_PANEL),
    ),
    call=_call,
    of_a_worker=(
        Option(
            "connection", "--connection", "NAME=FILE",
            "Run SQL statements of jobs on the PostgreSQL whose URL is in FILE. NAME=FILE,queues=A+B,tenants=1+2 "
            "allows only these. Can be repeated.",
            repeated=True,
        ),
    ),
    check_worker=_check_worker,
)  # fmt: skip
