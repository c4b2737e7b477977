"""The rules for the SQL files: names, guards, clocks, and no unused queries. One test for each rule: it lists the
statements that break it."""

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


def test_there_is_something_to_read() -> None:
    assert len(FILES) >= 8
    assert len(QUERIES) > 50
    assert {"runs:claim_from_lane", "fire:fire_recurring", "leases:take"} <= {query.label for query in MUTATIONS}
    assert not {"runs:lock_run", "fire:lock_due", "runs:redeliver"} & {query.label for query in MUTATIONS}


def test_every_statement_has_a_name() -> None:
    before_the_first = {file.stem: file.read_text(encoding="utf-8").split("-- name:")[0] for file in FILES}
    assert [
        (file, line)
        for file, text in before_the_first.items()
        for line in text.splitlines()
        if line and not line.startswith("--")
    ] == []


def test_a_name_has_one_statement() -> None:
    as_written = [query for file in FILES for query in read(file)]
    assert [query.label for query in as_written if not query.sql.strip()] == [], "no statement"
    assert [query.label for query in as_written if ";" in query.bare.strip().rstrip(";")] == [], "more than one"


def test_a_statement_that_writes_says_what_guards_it_or_why_nothing_need() -> None:
    def said(query: Query) -> int:
        return sum(1 for line in query.comments if re.match(r"-- (guard|unguarded): \S.{3}", line))

    assert [query.label for query in MUTATIONS if said(query) != 1] == [], (
        "needs one line `-- guard: ...` or `-- unguarded: why`"
    )


def test_a_run_is_changed_only_by_its_fence_or_from_a_known_state() -> None:
    """Every `update` and `delete` of runs, up to its `returning` or the end of its part of the statement."""
    unguarded = []
    parts = re.compile(r"\b(?=update\s+mainspring|delete\s+from\s+mainspring)")
    for query in MUTATIONS:
        for part in filter(OF_RUNS.match, parts.split(query.bare)[1:]):
            condition = re.split(r"\breturning\b", part.partition("where")[2])[0]
            if not re.search(r"\bfence\s*=|\bstate\s*\+\s*0\s*=", condition):
                unguarded.append((query.label, part))
    assert unguarded == []


def test_time_is_the_databases_at_that_moment_and_never_a_filter() -> None:
    """now() is the start of the transaction. A bare clock_timestamp() is volatile and turns an index range into a
    filter."""
    other_clocks = re.compile(
        r"\b(now\(\)|current_timestamp|localtimestamp|current_date|current_time"
        r"|transaction_timestamp\b|statement_timestamp\b|timeofday\b)"
    )
    assert [query.label for query in QUERIES if other_clocks.search(query.bare)] == []
    bare = [query.label for query in QUERIES if "clock_timestamp" in CLOCK_ALLOWED.sub("", query.bare)]
    assert bare == [], "write (select clock_timestamp())"


SCHEMA_FILES = sorted([*(STORE / "migrations").glob("*.sql"), *(STORE / "routines").glob("*.sql")])


def test_migrations_and_routines_read_the_clock_only_in_defaults_and_as_queries_do() -> None:
    allowed = re.compile(rf"{CLOCK_ALLOWED.pattern}|default clock_timestamp\(\)")
    texts = {file.name: re.sub(r"--[^\n]*", "", file.read_text(encoding="utf-8").lower()) for file in SCHEMA_FILES}
    assert [
        name for name, text in texts.items() if re.search(r"now\(\)|clock_timestamp\(\)", allowed.sub("", text))
    ] == []


def test_no_query_is_dead() -> None:
    """The module that loads its file names it. `beat_{table}` means beat_0 and beat_1."""

    def used(query: Query) -> bool:
        by_number = re.sub(r"_\d$", "_{table}", query.name)
        users = [text for text in MODULES.values() if f'load("{query.file}")' in text]
        return any(f'_SQL["{query.name}"]' in text or f'_SQL[f"{by_number}"]' in text for text in users)

    assert [query.label for query in QUERIES if not used(query)] == []


STAR_OF = re.compile(r"\b(\w+)\.\*")
LARGE_TABLES = ("runs", "run_history", "jobs", "dead_letters")


def test_no_column_is_sent_twice() -> None:
    """`r.*` beside `r.payload::text` sends the payload twice. A query that casts a column must list its columns."""
    assert [
        (query.label, f"{alias}.* beside a cast of its column")
        for query in QUERIES
        for alias in STAR_OF.findall(query.bare)
        if re.search(rf"\b{alias}\.\w+::", query.bare)
    ] == []
    assert [query.label for query in QUERIES if re.search(r"select\s+\*\s*,", query.bare)] == [], "* beside others"


def test_what_reads_large_tables_lists_their_columns() -> None:
    large = "|".join(LARGE_TABLES)
    writing = {query.label for query in MUTATIONS}

    def stars(sql: str) -> list[str]:
        aliases = re.findall(rf"mainspring\.(?:{large})\s+(\w+)", sql)
        return [f"{alias}.*" for alias in aliases if f"{alias}.*" in sql] + re.findall(
            rf"select\s+\*\s+from\s+mainspring\.(?:{large})\b", sql
        )

    assert [(query.label, star) for query in QUERIES if query.label not in writing for star in stars(query.bare)] == []


STATE_NUMBER = re.compile(
    r"\b(?:\w*state|status)(?:\s*\+\s*0)?\s*(?:=|<>|in\s*\()\s*\d|\b\d+\s+as\s+(?:state|status)\b"
)


def test_states_have_names() -> None:
    """A state is written as {{QUEUED}}. Its number comes from the domain. So do other constants."""
    constant = re.compile(rf"{STATE_NUMBER.pattern}|interval '5 minutes'|'at_most_once'|overlap = 0")
    assert [
        (file.stem, line)
        for file in [*FILES, FRAGMENTS]
        for line in file.read_text(encoding="utf-8").splitlines()
        if not line.startswith("--") and constant.search(line)
    ] == []


def test_runs_are_created_and_enter_the_history_in_fragments_alone() -> None:
    """So that no column is forgotten in one of many statements."""
    routines = sorted((STORE / "routines").glob("*.sql"))
    texts = {file.stem: file.read_text(encoding="utf-8") for file in [*FILES, FRAGMENTS, *routines]}
    inserts = re.compile(r"insert into mainspring\.(runs|run_history)\b")
    assert {name: set(inserts.findall(text)) for name, text in texts.items() if inserts.search(text)} == {
        "fragments": {"runs", "run_history"}
    }


def test_all_inserts_of_runs_share_their_first_columns_and_all_claims_their_tail() -> None:
    """So that a column that each run has, or that each claim returns, is written in one place."""
    shared = render("insert into mainspring.runs\n    ({{new_run_columns}}, ").split()
    inserts = [query for query in QUERIES if "insert into mainspring.runs\n" in query.sql]
    assert len(inserts) > 10
    assert [query.label for query in inserts if " ".join(shared) not in " ".join(query.sql.split())] == []
    claims = [query for query in QUERIES if query.name.startswith("claim_") and query.file == "runs"]
    assert len(claims) == 4
    sources = "".join(file.read_text(encoding="utf-8") for file in [*FILES, FRAGMENTS])
    assert sources.count("attempt = attempt + 1, fence = fence + 1") == 1
    assert sources.count("returning {{claimed_run}}") == 1
    columns = render("{{redelivered_run(r.exclusive)}}").partition("r.exclusive")[2]
    assert [query.label for query in claims if not query.sql.rstrip().endswith(columns)] == []


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
