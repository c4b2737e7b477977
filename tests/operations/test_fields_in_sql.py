"""What `mainspring.submit` takes and refuses follows from the table of fields: a new field needs no change of a
routine, and each field is decided in SQL as over HTTP."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import httpx
import pytest

from mainspring.store.routine_loader import read_routines
from mainspring.wire import fields
from mainspring.wire.fields import (
    ANYTHING,
    COUNT,
    DELIVERY,
    DURATION,
    FIELDS,
    KEPT_SIZE,
    MISFIRE,
    NAME,
    PAIRS,
    PRIORITY,
    PROSE,
    RETRY,
    TEXT,
    TIME,
    Field,
    FieldKind,
    Member,
    Place,
    fields_in,
)
from mainspring.wire.states import BACKOFFS, MISFIRE_POLICIES

from .test_submit_in_sql import both_ways, submit

pytestmark = pytest.mark.anyio

EVERYWHERE = Place.REQUEST | Place.PATCH | Place.SQL | Place.KEYWORD
ADDED = (
    Field("probe_in", DURATION, EVERYWHERE, "spec.probe_in", least=1, most=60),
    Field("probe_count", COUNT, EVERYWHERE, "spec.probe_count", least=2, most=5),
    Field("probe_line", TEXT, EVERYWHERE, "spec.probe_line", least=1, most=5),
    Field("probe_prose", PROSE, EVERYWHERE, "spec.probe_prose", most=5),
    Field("probe_name", NAME, EVERYWHERE, "spec.probe_name"),
    Field("probe_time", TIME, EVERYWHERE, "spec.probe_time"),
    Field("probe_word", DELIVERY, EVERYWHERE, "spec.probe_word", sql_words=("at_most_once",)),
    Field("probe_pairs", PAIRS, EVERYWHERE, "spec.probe_pairs", least=1, most=1),
    Field("probe_object", MISFIRE, EVERYWHERE, "spec.probe_object", members=(Member("cap", 3, 4),)),
    Field("probe_http", ANYTHING, EVERYWHERE & ~Place.SQL, "spec.probe_http"),
)
TAKEN: dict[str, tuple[Any, Any]] = {
    "probe_in": ("1m", 60), "probe_count": (5, 5), "probe_line": ("abc", "abc"), "probe_prose": ("a\nb", "a\nb"),
    "probe_name": ("n", "n"), "probe_time": ("2036-12-31T23:59:59+01:00", "2036-12-31T22:59:59.000000Z"),
    "probe_word": ("AT_MOST_ONCE", "at_most_once"), "probe_pairs": ({"a": "b"}, {"a": "b"}),
    "probe_object": ({"cap": 4}, {"cap": 4}),
}  # fmt: skip
REFUSED: list[tuple[str, Any, str, str]] = [
    ("probe_in", "61s", "probe_in", "give 1 to 60 seconds"),
    ("probe_in", "soon", "probe_in", "write"),
    ("probe_count", 1, "probe_count", "a whole number from 2 to 5"),
    ("probe_line", "a\nb", "probe_line", "one line"),
    ("probe_line", "abcdef", "probe_line", "1 to 5 characters"),
    ("probe_prose", "abcdef", "probe_prose", "at most 5"),
    ("probe_name", "", "probe_name", "1 to 200 characters"),
    ("probe_time", "2036-12-31T23:59:59", "probe_time", "add one"),
    ("probe_word", "at_least_once", "probe_word", "POST /v1/jobs"),
    ("probe_word", "x", "probe_word", "choose one of at_most_once"),
    ("probe_pairs", {"a": ""}, "probe_pairs", "1 to 200 characters"),
    ("probe_pairs", {"a": "b", "c": "d"}, "probe_pairs", "at most 1"),
    ("probe_object", {"cap": 5}, "probe_object.cap", "from 3 to 4"),
    ("probe_object", {"policy": "all"}, "probe_object.policy", "POST /v1/jobs"),
    ("probe_object", {"x": 1}, "probe_object.x", "known are: cap"),
    ("probe_http", 1, "probe_http", "POST /v1/jobs"),
]


@pytest.fixture
async def with_new_fields(monkeypatch: pytest.MonkeyPatch, connection: asyncpg.Connection) -> None:
    monkeypatch.setattr(fields, "FIELDS", (*FIELDS, *ADDED))
    await connection.execute(read_routines())


@pytest.mark.usefixtures("with_new_fields")
async def test_a_new_field_is_taken_without_a_change_of_a_routine(connection: asyncpg.Connection) -> None:
    await submit(connection, {"task": "t", **{name: given for name, (given, _) in TAKEN.items()}})
    spec = await connection.fetchval("select spec::text from mainspring.runs")
    assert json.loads(spec) == {name: stored for name, (_, stored) in TAKEN.items()}


@pytest.mark.usefixtures("with_new_fields")
async def test_a_new_field_is_refused_by_name_with_a_fix(connection: asyncpg.Connection) -> None:
    for name, value, field, fix in REFUSED:
        with pytest.raises(asyncpg.InvalidParameterValueError) as refused:
            await submit(connection, {"task": "t", name: value})
        assert (refused.value.detail, fix in refused.value.hint) == (field, True), (name, value, refused.value.hint)
    assert await connection.fetchval("select count(*) from mainspring.runs") == 0


async def test_a_field_of_a_type_that_sql_cannot_read_is_found_when_routines_are_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fields, "FIELDS", (*FIELDS, Field("probe", ANYTHING, EVERYWHERE, "spec.probe")))
    with pytest.raises(ValueError, match=r"probe: SQL cannot read the type Any; leave Place\.SQL out of its places"):
        read_routines()


SAMPLES: dict[FieldKind, list[Any]] = {
    NAME: ["", "n", "x" * 200, "x" * 201, "a\tb", 5],
    KEPT_SIZE: [True, 0, "64KiB", "257KiB", "x"],
    PRIORITY: ["low", "CRITICAL", 0, 3, 4, "4", "x", True],
    TIME: ["2036-12-31T23:59:59Z", "2036-12-31T23:59:59", "x", 5],
    RETRY: [{}, {"base": "5s"}, {"x": 1}, [], *({"backoff": word} for word in BACKOFFS)],
    MISFIRE: [{}, {"x": 1}, [], *({"policy": word} for word in MISFIRE_POLICIES)],
}


def samples(field: Field) -> list[Any]:
    """Values at the bounds of a field and beyond them, and of other types."""
    others = [[], {}, "x" * 10_001, -1, True]
    if field.members:
        limits = [
            {member.name: bound} for member in field.members if member.most
            for bound in (member.least, member.most, member.most + 1, member.least - 1)
        ]  # fmt: skip
        return [*SAMPLES.get(field.kind, []), *limits, *others]
    if field.sql_words:
        return [*field.sql_words, "x", *others]
    least, most = field.least, field.most
    if field.kind in (DURATION, COUNT):
        return [least, most, most + 1, least - 1, *others]
    if field.kind in (TEXT, PROSE):
        return ["x" * int(least), "x" * int(most), "x" * (int(most) + 1), "a\nb", *others]
    if field.kind is PAIRS:
        many = [{str(n): "v" for n in range(count)} for count in (int(most), int(most) + 1)]
        return [*many, {"a": "x" * int(least)}, {"a": ""}, {"": "a"}, {"a": None}, *others]
    return [*SAMPLES.get(field.kind, []), *others]


@pytest.mark.parametrize("field", fields_in(Place.REQUEST), ids=lambda field: field.name)
async def test_both_roads_decide_a_field_in_the_same_way(
    api: httpx.AsyncClient, connection: asyncpg.Connection, field: Field
) -> None:
    if Place.SQL not in field.places:
        with pytest.raises(asyncpg.InvalidParameterValueError, match=f"{field.name} cannot be given in SQL") as refused:
            await submit(connection, {"task": "noop", field.name: "x"})
        assert (refused.value.detail, "POST /v1/jobs" in refused.value.hint) == (field.name, True)
        return
    for value in samples(field):
        over_http, in_sql = await both_ways(api, connection, {"name": "noop", field.name: value})
        assert in_sql == over_http, value


async def test_a_word_that_sql_does_not_take_is_sent_to_http(connection: asyncpg.Connection) -> None:
    for field, word in (("schedule_type", "AFTER"), ("schedule_type", "cron"), ("overlap", "Queue")):
        with pytest.raises(
            asyncpg.InvalidParameterValueError, match=f"{word.lower()} cannot be given in SQL"
        ) as refused:
            await submit(connection, {"task": "a", field: word})
        assert (refused.value.detail, "POST /v1/jobs" in refused.value.hint) == (field, True)
