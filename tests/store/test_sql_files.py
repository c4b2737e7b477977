"""The rules for the SQL files: names, guards, clocks, and no unused queries."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import mainspring.store
from mainspring.store.queries import CONSTANTS, render

from .sql_snapshot import RENEWAL, SNAPSHOT, dump

STORE = Path(mainspring.store.__file__).parent
NAME = re.compile(r"^-- name: (\w+)\s*$")
ROW_LOCK = re.compile(r"\bfor\s+(no\s+key\s+update|update|key\s+share|share)\b")
MUTATION = re.compile(r"\b(insert\s+into|update|delete\s+from)\b")
OF_RUNS = re.compile(r"\b(?:update|delete\s+from)\s+mainspring\.runs\b")
CLOCK_ALLOWED = re.compile(r"\(select clock_timestamp\(\)( as now)?\)")


@dataclass(frozen=True)
class Query:
    file: str
    name: str
    comments: list[str]
    sql: str

    @property
    def label(self) -> str:
        return f"{self.file}:{self.name}"

    @property
    def bare(self) -> str:
        """The statement in lower case, without row locks and quoted text."""
        return re.sub(r"'[^']*'", "''", ROW_LOCK.sub("", self.sql.lower()))


def read(file: Path) -> list[Query]:
    found: list[Query] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if match := NAME.match(line):
            found.append(Query(file.stem, match.group(1), [], ""))
        elif found and line.startswith("--"):
            found[-1].comments.append(line)
        elif found:
            before = found[-1]
            found[-1] = Query(before.file, before.name, before.comments, f"{before.sql}{line}\n")
    return found


FRAGMENTS = STORE / "sql" / "fragments.sql"
FILES = sorted(file for file in (STORE / "sql").glob("*.sql") if file != FRAGMENTS)
QUERIES = [replace(query, sql=render(query.sql)) for file in FILES for query in read(file)]
MUTATIONS = [query for query in QUERIES if MUTATION.search(query.bare)]
MODULES = {file.name: file.read_text(encoding="utf-8") for file in STORE.glob("*.py")}


def label(query: Query) -> str:
    return query.label


def test_there_is_something_to_read() -> None:
    assert len(FILES) >= 8
    assert len(QUERIES) > 50
    assert {"runs:claim_from_lane", "fire:fire_recurring", "leases:take"} <= {query.label for query in MUTATIONS}
    assert not {"runs:lock_run", "fire:lock_due", "runs:redeliver"} & {query.label for query in MUTATIONS}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_statement_has_a_name(file: Path) -> None:
    before_the_first = file.read_text(encoding="utf-8").split("-- name:")[0]
    assert [line for line in before_the_first.splitlines() if line and not line.startswith("--")] == []
    for query in read(file):
        assert query.sql.strip(), f"{query.label} has no statement"
        assert ";" not in query.bare.strip().rstrip(";"), f"{query.label} is more than one statement"


@pytest.mark.parametrize("query", MUTATIONS, ids=label)
def test_a_statement_that_writes_says_what_guards_it_or_why_nothing_need(query: Query) -> None:
    said = [line for line in query.comments if re.match(r"-- (guard|unguarded): \S.{3}", line)]
    assert len(said) == 1, f"{query.label} needs one line `-- guard: ...` or `-- unguarded: why`"


@pytest.mark.parametrize("query", [query for query in MUTATIONS if OF_RUNS.search(query.bare)], ids=label)
def test_a_run_is_changed_only_by_its_fence_or_from_a_known_state(query: Query) -> None:
    """Every `update` and `delete` of runs, up to its `returning` or the end of its part of the statement."""
    for part in re.split(r"\b(?=update\s+mainspring|delete\s+from\s+mainspring)", query.bare)[1:]:
        if not OF_RUNS.match(part):
            continue
        condition = re.split(r"\breturning\b", part.partition("where")[2])[0]
        assert re.search(r"\bfence\s*=|\bstate\s*\+\s*0\s*=", condition), f"{query.label}: {part}"


@pytest.mark.parametrize("query", QUERIES, ids=label)
def test_time_is_the_databases_at_that_moment_and_never_a_filter(query: Query) -> None:
    """now() is the start of the transaction. A bare clock_timestamp() is volatile and turns an index range into a
    filter."""
    assert not re.search(r"\b(now\(\)|current_timestamp|localtimestamp|current_date|current_time)", query.bare)
    assert not re.search(r"\b(transaction_timestamp|statement_timestamp|timeofday)\b", query.bare)
    left = CLOCK_ALLOWED.sub("", query.bare)
    assert "clock_timestamp" not in left, f"{query.label}: write (select clock_timestamp())"


SCHEMA_FILES = sorted([*(STORE / "migrations").glob("*.sql"), *(STORE / "routines").glob("*.sql")])


@pytest.mark.parametrize("file", SCHEMA_FILES, ids=lambda file: file.stem)
def test_migrations_and_routines_read_the_clock_only_in_defaults_and_as_queries_do(file: Path) -> None:
    text = CLOCK_ALLOWED.sub("", re.sub(r"--[^\n]*", "", file.read_text(encoding="utf-8").lower()))
    assert "now()" not in text
    assert len(re.findall(r"clock_timestamp\(\)", text)) == len(re.findall(r"default clock_timestamp\(\)", text))


@pytest.mark.parametrize("query", QUERIES, ids=label)
def test_no_query_is_dead(query: Query) -> None:
    """The module that loads its file names it. `beat_{table}` means beat_0 and beat_1."""
    users = [text for text in MODULES.values() if f'load("{query.file}")' in text]
    assert users, f"nothing loads {query.file}.sql"
    by_number = re.sub(r"_\d$", "_{table}", query.name)
    assert any(f'_SQL["{query.name}"]' in text or f'_SQL[f"{by_number}"]' in text for text in users), (
        f"nothing uses {query.label}"
    )


STAR_OF = re.compile(r"\b(\w+)\.\*")
LARGE_TABLES = ("runs", "run_history", "jobs", "dead_letters")


@pytest.mark.parametrize("query", QUERIES, ids=label)
def test_no_column_is_sent_twice(query: Query) -> None:
    """`r.*` beside `r.payload::text` sends the payload twice. A query that casts a column must list its columns."""
    for alias in STAR_OF.findall(query.bare):
        assert not re.search(rf"\b{alias}\.\w+::", query.bare), f"{query.label}: {alias}.* beside a cast of its column"
    assert not re.search(r"select\s+\*\s*,", query.bare), f"{query.label}: * beside other columns"


@pytest.mark.parametrize("query", [query for query in QUERIES if query not in MUTATIONS], ids=label)
def test_what_reads_large_tables_lists_their_columns(query: Query) -> None:
    for table, alias in re.findall(r"mainspring\.(\w+)\s+(\w+)", query.bare):
        if table in LARGE_TABLES:
            assert f"{alias}.*" not in query.bare, f"{query.label}: list the columns of {table}"
        assert not re.search(rf"select\s+\*\s+from\s+mainspring\.{table}", query.bare) or table not in LARGE_TABLES


STATE_NUMBER = re.compile(
    r"\b(?:\w*state|status)(?:\s*\+\s*0)?\s*(?:=|<>|in\s*\()\s*\d|\b\d+\s+as\s+(?:state|status)\b"
)


@pytest.mark.parametrize("file", [*FILES, FRAGMENTS], ids=lambda file: file.stem)
def test_states_have_names(file: Path) -> None:
    """A state is written as {{QUEUED}}. Its number comes from the domain."""
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("--")]
    assert [line for line in lines if STATE_NUMBER.search(line)] == []
    assert [line for line in lines if re.search(r"interval '5 minutes'|'at_most_once'|overlap = 0", line)] == []


def test_runs_are_created_and_enter_the_history_in_one_place_each() -> None:
    routines = sorted((STORE / "routines").glob("*.sql"))
    texts = {file.stem: file.read_text(encoding="utf-8") for file in [*FILES, FRAGMENTS, *routines]}
    for table, places in (
        ("runs", ["fragments"] * 6),
        ("run_history", ["fragments"]),
    ):  # plain, with limits, steps, those that wait
        inserts = [
            name for name, text in texts.items() for _ in re.findall(rf"insert into mainspring\.{table}\b", text)
        ]
        assert inserts == places, table


def test_every_fragment_and_parameter_is_used() -> None:
    text = FRAGMENTS.read_text(encoding="utf-8")
    known = dict(re.findall(r"^-- fragment: (\w+)(?:\((.*)\))?$", text, re.M))
    folders = [STORE / "sql", STORE / "routines"]
    everything = "".join(file.read_text(encoding="utf-8") for folder in folders for file in folder.glob("*.sql"))
    used = set(re.findall(r"\{\{(\w+)", everything))
    for name, parameters in known.items():
        assert name in used, f"nothing uses the fragment {name}"
        assert name not in CONSTANTS
        for parameter in filter(None, map(str.strip, parameters.split(","))):
            assert parameter in used, f"{name} does not use {parameter}"


def test_an_unknown_name_and_missing_arguments_are_errors() -> None:
    with pytest.raises(ValueError, match="neither a constant nor a fragment"):
        render("select {{NOBODY}}")
    with pytest.raises(ValueError, match=r"takes \(lane, bound, limit\)"):
        render("select {{head(1)}}")


def test_the_statements_are_those_of_the_snapshot() -> None:
    assert dump() == SNAPSHOT.read_text(encoding="utf-8"), (
        f"a statement differs from the snapshot; if the change is intended, renew it with `{RENEWAL}`"
    )


def test_the_modules_ask_only_for_queries_that_exist() -> None:
    for name, text in MODULES.items():
        files = re.findall(r'load\("(\w+)"\)', text)
        known = {query.name for query in QUERIES if query.file in files}
        assert set(re.findall(r'_SQL\["(\w+)"\]', text)) <= known, name
