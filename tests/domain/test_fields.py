"""Compares every declaration of a job's field with the table of fields (wire/fields.py)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest
import typer.main
from msgspec import UNSET, UnsetType

from mainspring.cli import field_options
from mainspring.cli.field_options import edit_options, field_values, submit_options
from mainspring.cli.main import build
from mainspring.domain.job import JobDefinition, Spec, plain_values
from mainspring.kinds.registry import task_kinds
from mainspring.sdk.app.app import TaskOptions
from mainspring.sdk.client import field_types
from mainspring.sdk.client.job_fields import OPTION_NAMES, JobChanges, JobFields
from mainspring.wire import states
from mainspring.wire.events import EventsTogether
from mainspring.wire.execution import RunSetup
from mainspring.wire.fields import (
    ANYTHING,
    COUNT,
    DURATION,
    FATE,
    FIELDS,
    NAMES,
    ON_DEADLINE,
    PAIRS,
    PLAIN_FIELDS,
    PLAIN_NAMES,
    RETRY,
    TEXT,
    Field,
    FieldKind,
    OnDeadline,
    OptionPart,
    Place,
    PlainKeywords,
    PlainValues,
    can_change,
    fields_in,
    plain_field,
    task_options,
)
from mainspring.wire.jobs import (
    JobPatch,
    JobRequest,
    JobView,
    MisfireIn,
    ResourceLimitsIn,
    RetryIn,
    RetryRuleIn,
)
from mainspring.wire.kind_fields import KindKeywords, ShownCalls
from mainspring.wire.limits import CircuitBreakerIn, ConcurrencyIn, RateLimitIn
from mainspring.wire.schedules import DstIn
from mainspring.wire.tasks import DeclaredOptions
from mainspring.wire.unique import UniqueIn

from .requests_as_sent import amended, defined

# Options of `mainspring submit` that are not fields: parts of calls, and what the command does afterwards.
OF_EVERY_COMMAND = {"--json", "--url", "--token-file", "--data", "--ca", "--insecure-http", "--config"}
OF_THE_COMMAND = {"KEY=VALUE", "--wait", "--timeout-wait"} | OF_EVERY_COMMAND
OF_EDIT = {"JOB", "--task", "--clear"} | OF_EVERY_COMMAND
# What a job runs: these options are in cli/task_options.py, and the task is an argument.
WHAT_RUNS = {"task", "payload", *(kind.field for kind in task_kinds())}
# Fields that have no option of their own, and why.
WITHOUT_OPTION = {
    "job_type": "another name of task",
    "schedule_type": "follows from the option for the schedule",
    "schedule_time": "another name of --at",
    "cron_expression": "another name of --cron",
    "retry_policy": "another name of retry",
    "max_retries": "another name of retries",
    "rate": "--rate gives rate_limit",
    "declared_by": "an application says it",
    "dependencies": "another name of depends_on",
}
# Fields whose type does not mention null: the payload is stored as it was sent, the others are refused by name.
CALLS = {kind.field: kind.part("call").CALL_IN for kind in task_kinds()}
UNWRAPPED = {"payload": "msgspec.Raw"}


def names(fields: Iterable[Field]) -> list[str]:
    return [field.name for field in fields]


def parts_of_calls() -> set[str]:
    """The options of kinds, without the first of each, which has the name of the field."""
    return {option.flag for kind in task_kinds() for option in kind.part("options").OPTIONS.of_a_job[1:]}


def default_of(struct: type[msgspec.Struct], name: str) -> Any:
    index = struct.__struct_fields__.index(name) - len(struct.__struct_fields__)
    return struct.__struct_defaults__[index]


def test_each_field_has_one_row() -> None:
    assert len(set(names(FIELDS))) == len(FIELDS)


def test_the_structs_have_the_fields_of_the_table_in_its_order() -> None:
    assert list(JobRequest.__struct_fields__) == names(fields_in(Place.REQUEST))
    assert list(JobPatch.__struct_fields__) == names(fields_in(Place.PATCH))
    assert set(DeclaredOptions.__struct_fields__) == set(names(task_options()))


def test_a_request_takes_a_field_with_the_type_of_the_table() -> None:
    for field in fields_in(Place.REQUEST):
        expected = CALLS[field.name] | None if field.name in CALLS else f"{field.kind.wire} | None"
        expected = UNWRAPPED.get(field.name, expected)
        assert JobRequest.__annotations__[field.name] == expected, field.name
        if field.name != "payload":
            assert default_of(JobRequest, field.name) is None, field.name
    for field in (field for field in fields_in(Place.TASK_OPTION) if field.means is None):
        assert DeclaredOptions.__annotations__[field.name] == f"{field.kind.wire} | None", field.name
        assert default_of(DeclaredOptions, field.name) is None, field.name


def test_a_patch_takes_a_field_and_null_where_the_table_says_so() -> None:
    for field in fields_in(Place.PATCH):
        null = " | None" if Place.CLEAR in field.places else ""
        wire = field.kind.wire.replace("ScheduleIn", "ScheduleChange")  # its members can be null too
        expected = CALLS[field.name] | UnsetType if field.name in CALLS else f"{wire} | UnsetType{null}"
        expected = UNWRAPPED.get(field.name, expected)
        assert JobPatch.__annotations__[field.name] == expected, field.name
        if field.name != "payload":
            assert default_of(JobPatch, field.name) is UNSET, field.name
    assert set(names(fields_in(Place.CLEAR))) <= set(names(fields_in(Place.PATCH)))


def test_a_field_is_stored_where_the_table_says() -> None:
    places = set(JobDefinition.__struct_fields__) | {f"spec.{name}" for name in Spec.__struct_fields__}
    places |= {f"spec.setup.{name}" for name in RunSetup.__struct_fields__}
    assert [field.name for field in FIELDS if field.stored is not None and field.stored not in places] == []
    unstored = [field for field in FIELDS if field.stored is None]
    assert [field.name for field in unstored if field.means not in names(FIELDS)] == []


def test_nothing_is_stored_or_shown_that_is_not_in_the_table() -> None:
    stored = {field.stored for field in FIELDS}
    assert {f"spec.{name}" for name in Spec.__struct_fields__} - stored == {
        "spec.setup", "spec.overlap", "spec.repeat", "spec.line", "spec.boost", "spec.workflow", "spec.step",
        "spec.requested_at", "spec.found_by", "spec.callback",
    }  # fmt: skip
    assert {f"spec.setup.{name}" for name in RunSetup.__struct_fields__} <= stored
    assert set(JobDefinition.__struct_fields__) - stored == {"spec", "idempotency_key"}
    shown = {name for field in FIELDS for name in field.shown}
    assert set(JobView.__struct_fields__) == shown | FATE
    assert not shown & FATE


def test_the_keywords_of_the_sdk_are_those_of_the_table() -> None:
    keywords = fields_in(Place.KEYWORD)
    assert set(JobFields.__annotations__) == set(names(keywords))
    for field in keywords:
        expected = field.kind.keyword if field.name == "payload" else f"{field.kind.keyword} | None"
        assert JobFields.__annotations__[field.name].__forward_arg__ == expected, field.name
    fixed = {field.name for field in keywords if Place.REQUEST in field.places and Place.PATCH not in field.places}
    assert set(JobChanges.__annotations__) == set(JobFields.__annotations__) - fixed
    assert set(names(fields_in(Place.TASK_OPTION))) <= OPTION_NAMES <= set(names(keywords))
    assert set(TaskOptions.__annotations__) == set(names(fields_in(Place.TASK_OPTION))) | {
        "executor",
        "worker_concurrency",
        "delay",
    }


def test_the_words_and_members_of_the_sdk_are_those_of_requests() -> None:
    for options, struct in (
        (field_types.RetryOptions, RetryIn), (field_types.RetryRuleOptions, RetryRuleIn),
        (field_types.EventsTogetherOptions, EventsTogether),
        (field_types.MisfireOptions, MisfireIn), (field_types.ResourceLimitOptions, ResourceLimitsIn),
        (field_types.ConcurrencyOptions, ConcurrencyIn), (field_types.RateLimitOptions, RateLimitIn),
        (field_types.CircuitBreakerOptions, CircuitBreakerIn), (field_types.DstOptions, DstIn),
        (field_types.UniqueOptions, UniqueIn),
    ):  # fmt: skip
        members = {member.encode_name: member for member in msgspec.structs.fields(struct)}
        types = get_type_hints(options)
        assert types.keys() == members.keys(), options
        assert options.__required_keys__ <= {name for name, member in members.items() if member.required}, options
        for name, member in members.items():
            assert _words(types[name]) == _words(member.type) or not _words(member.type), (options, name)
    for words, word in (
        (field_types.Priority, states.PriorityWord), (field_types.Delivery, states.DeliveryWord),
        (field_types.Overlap, states.OverlapWord), (field_types.Outside, states.OutsideWord),
        (field_types.Sandbox, states.SandboxWord), (field_types.ScheduleKind, states.ScheduleType),
        (field_types.Rule, states.TriggerRuleWord), (field_types.OnUpstreamFailure, states.OnUpstreamFailureWord),
        (field_types.MisfirePolicy, states.MisfireWord), (OnDeadline, states.OnDeadlineWord),
    ):  # fmt: skip
        assert _words(words) == _words(word), words


def _words(annotation: Any) -> set[str]:
    """The words of a Literal, or of a field that is one of some words."""
    if get_origin(annotation) is Literal:
        return {word for word in get_args(annotation) if isinstance(word, str)}
    found: set[str] = set()
    for inner in get_args(annotation):
        found |= (
            set((inner.extra_json_schema or {}).get("enum", ())) if isinstance(inner, msgspec.Meta) else _words(inner)
        )
    return found


def test_the_options_of_the_command_line_are_those_of_the_table() -> None:
    parts = parts_of_calls() | {part.option for field in FIELDS for part in field.parts}
    described = {field.option for field in FIELDS if field.option} | parts
    assert options_of("submit") == described | OF_THE_COMMAND
    fixed = {"job_id", "idempotency_key", "unique"}
    assert fixed == {field.name for field in FIELDS if field.option and not can_change(field)}
    of_submit = {field.option for field in FIELDS if field.name in fixed} | {"TASK"}
    assert options_of("job", "edit") == (described - of_submit) | OF_EDIT


def options_of(*words: str) -> set[str]:
    command: Any = typer.main.get_command(build(words[:1]))
    for word in words:
        command = command.commands[word]
    return {
        parameter.metavar if parameter.param_type_name == "argument" else parameter.opts[0]
        for parameter in command.params
        if parameter.name != "help"
    }


def test_a_field_of_the_table_is_an_option_or_has_a_reason() -> None:
    for field in FIELDS:
        made = {parameter.name for parameter in submit_options()} & {
            field.name,
            *(f"{field.name}_{part.member}" for part in field.parts),
        }
        hand = field.name in WHAT_RUNS
        assert [bool(made), hand, field.name in WITHOUT_OPTION].count(True) == 1, field.name
        assert bool(made) == (field.help is not None or bool(field.parts)), field.name
        if field.help is not None:
            assert field.option is not None and field.option.startswith("--"), field.name


@pytest.mark.parametrize(
    ("kind", "typed", "sent"),
    [
        (TEXT, "3", "3"),
        (DURATION, "90s", "90s"),
        (COUNT, 3, 3),
        (PAIRS, ["a=1", "b=x"], {"a": "1", "b": "x"}),
        (NAMES, ["a", "b"], ["a", "b"]),
        (NAMES, [], None),
        (RETRY, '{"base": "5s"}', {"base": "5s"}),
        (ANYTHING, '[{"mail": "me"}]', [{"mail": "me"}]),
        (ANYTHING, "me", "me"),
        (ANYTHING, None, None),
    ],
)
def test_a_new_field_is_an_option_of_submit_and_edit(
    monkeypatch: pytest.MonkeyPatch, kind: FieldKind, typed: Any, sent: Any
) -> None:
    """Without a line in the command line: its row is enough."""
    everywhere = Place.REQUEST | Place.PATCH | Place.KEYWORD
    row = Field("probe", kind, everywhere, "spec.probe", ("probe",), "--probe", help="Probe.", metavar="X")
    monkeypatch.setattr(field_options, "FIELDS", (*FIELDS, row))
    for made in (submit_options(), edit_options()):
        [option] = [each for each in made if each.name == "probe"]
        declared = option.annotation.__metadata__[0]
        assert (declared.help, declared.metavar, option.default) == ("Probe.", "X", None)
    assert field_values({"probe": typed}) == {"probe": sent}


def test_a_field_that_cannot_be_changed_is_no_option_of_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Field("probe", TEXT, Place.REQUEST, "spec.probe", ("probe",), "--probe", help="Probe.")
    switch = Field("swing", TEXT, Place.PATCH, option="--swing", help="Swing.", gives="high")
    parts = Field(
        "pair",
        ANYTHING,
        Place.PATCH,
        parts=(OptionPart("left", "--left", "Left."), OptionPart("right", "--right", "R.")),
    )
    monkeypatch.setattr(field_options, "FIELDS", (row, switch, parts))
    assert [each.name for each in submit_options()] == ["probe", "swing", "pair_left", "pair_right"]
    assert [each.name for each in edit_options()] == ["swing", "pair_left", "pair_right"]
    assert field_values({"swing": True, "pair_left": "1", "pair_right": None}) == {
        "swing": "high",
        "pair": {"left": "1"},
    }
    assert field_values({"swing": False, "pair_left": None, "pair_right": None}) == {"swing": None, "pair": None}


def test_type_checkers_see_the_plain_fields() -> None:
    """PlainValues and PlainKeywords, which editors read, name each plain field."""
    assert tuple(PlainValues.__annotations__) == tuple(PlainKeywords.__annotations__) == PLAIN_NAMES
    for field in PLAIN_FIELDS:
        assert PlainValues.__annotations__[field.name] == f"{field.kind.stored} | None"
        assert PlainKeywords.__annotations__[field.name].__forward_arg__ == f"{field.kind.keyword} | None"
    for struct in (Spec, JobView):
        assert issubclass(struct, PlainValues)
        hints = get_type_hints(struct)
        assert all(hints[name] == get_type_hints(PlainValues)[name] for name in PLAIN_NAMES)


def test_plain_fields_may_be_given_everywhere() -> None:
    for field in PLAIN_FIELDS:
        assert all(place in field.places for place in Place)
        assert (field.stored, field.shown) == (f"spec.{field.name}", (field.name,))
        assert field.help and field.help.endswith("."), "the help of its option is a sentence"
        assert field.least < field.most


@pytest.mark.parametrize("field", PLAIN_FIELDS, ids=lambda field: field.name)
def test_a_plain_field_is_read_stored_changed_and_taken_back(field: Field) -> None:
    low, high = {TEXT: ("x", "y"), ON_DEADLINE: ("tell", "cancel")}.get(field.kind, (field.least, field.most))
    job = defined({"task": "t", "schedule": "manual", field.name: low})
    assert plain_values(job.spec) == dict.fromkeys(PLAIN_NAMES) | {field.name: low}
    changed = amended(job, {field.name: high})
    assert plain_values(changed.spec)[field.name] == high
    assert plain_values(amended(changed, {"owner": "me"}).spec)[field.name] == high
    assert amended(changed, {field.name: None}) == defined({"task": "t", "schedule": "manual"})


def test_type_checkers_see_the_calls_of_our_kinds() -> None:
    own = [kind for kind in task_kinds() if kind.folder.startswith("mainspring.")]
    assert tuple(KindKeywords.__annotations__) == tuple(kind.field for kind in own)
    for kind in own:
        assert KindKeywords.__annotations__[kind.field].__forward_arg__ == f"{kind.keyword} | None"
    shown = get_type_hints(ShownCalls)
    assert shown == {kind.field: kind.part("call").CALL | None for kind in own if kind.in_setup}
    for struct in (RunSetup, JobView):
        assert issubclass(struct, ShownCalls)
        assert {name: hint for name, hint in get_type_hints(struct).items() if name in shown} == shown


def test_only_simple_kinds_are_plain() -> None:
    with pytest.raises(ValueError, match="probe: a plain field is a duration, a count, a text or a word"):
        plain_field("probe", next(field.kind for field in FIELDS if field.name == "env"), least=0, most=1, help="No.")
