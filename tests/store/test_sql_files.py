"""The habits of the SQL files, read from the files: names, guards, clocks, nothing dead."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import mainspring.store
from mainspring.store.queries import render

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
        """The statement in lower case, without row locks and without what stands in quotes."""
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


FILES = sorted(file for file in (STORE / "sql").glob("*.sql") if file.stem != "fragments")
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
    """now() is the transaction's start; a bare clock_timestamp() is volatile and turns an index range into a filter."""
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
    """It is named by the module that loads its file; `beat_{table}` stands for beat_0 and beat_1."""
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
    """`r.*` beside `r.payload::text` sends the payload twice: a query that casts a column lists its columns."""
    for alias in STAR_OF.findall(query.bare):
        assert not re.search(rf"\b{alias}\.\w+::", query.bare), f"{query.label}: {alias}.* beside a cast of its column"
    assert not re.search(r"select\s+\*\s*,", query.bare), f"{query.label}: * beside other columns"


@pytest.mark.parametrize("query", [query for query in QUERIES if query not in MUTATIONS], ids=label)
def test_what_reads_large_tables_lists_their_columns(query: Query) -> None:
    for table, alias in re.findall(r"mainspring\.(\w+)\s+(\w+)", query.bare):
        if table in LARGE_TABLES:
            assert f"{alias}.*" not in query.bare, f"{query.label}: list the columns of {table}"
        assert not re.search(rf"select\s+\*\s+from\s+mainspring\.{table}", query.bare) or table not in LARGE_TABLES


STATE_NUMBER = re.compile(r"\b(?:state|status)(?:\s*\+\s*0)?\s*(?:=|<>|in\s*\()\s*\d")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_states_have_names(file: Path) -> None:
    """A number of a state is written {{QUEUED}}: it comes from the domain."""
    if file.stem in {"runs", "fire", "dead_letters"}:
        pytest.skip("theirs come with the fragments of the run lifecycle")
    for query in read(file):
        assert not STATE_NUMBER.search(query.bare), f"{query.label} has a bare number of a state"


def test_the_modules_ask_only_for_queries_that_exist() -> None:
    for name, text in MODULES.items():
        files = re.findall(r'load\("(\w+)"\)', text)
        known = {query.name for query in QUERIES if query.file in files}
        assert set(re.findall(r'_SQL\["(\w+)"\]', text)) <= known, name
