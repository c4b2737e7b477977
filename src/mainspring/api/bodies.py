"""Bodies: JSON to wire structs, and every way in which that can fail put in words with the field's path."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import msgspec
from litestar.dto import AbstractDTO, DTOFieldDefinition
from litestar.typing import FieldDefinition

from mainspring.domain.errors import InvalidBatch, InvalidInput, MainspringError
from mainspring.kernel.config import MAX_BATCH
from mainspring.wire.access import TenantRequest, TokenRequest
from mainspring.wire.exchange import ExchangeRequest, Outcome, WorkerHello
from mainspring.wire.execution import HttpCall, SuccessRule
from mainspring.wire.jobs import JobPatch, JobRequest, MisfireIn, ResourceLimitsIn, RetryIn, RetryRuleIn, ScheduleIn
from mainspring.wire.logs import LogChunk, LogShipment
from mainspring.wire.problems import FieldProblem
from mainspring.wire.runs import DeadLetterChoice, ReplayRequest

T = TypeVar("T")

_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")
_MISSING = re.compile(r"Object missing required field `([^`]*)`")
_PATH = re.compile(r" - at `\$?([^`]*)`$")
_INDEX = re.compile(r"\[[^\]]*\]")
_NESTED: dict[str, type[msgspec.Struct]] = {
    "schedule": ScheduleIn,
    "retry": RetryIn,
    "misfire": MisfireIn,
    "limits": ResourceLimitsIn,
    "rules": RetryRuleIn,
    "http": HttpCall,
    "success": SuccessRule,
    "hello": WorkerHello,
    "outcomes": Outcome,
    "chunks": LogChunk,
}
_MAX_ERRORS = 100
_LONGEST_NAME = 100  # of an unknown field, in an answer

_decode_job = msgspec.json.Decoder(JobRequest).decode
_decode_jobs = msgspec.json.Decoder(list[JobRequest]).decode
_decode_patch = msgspec.json.Decoder(JobPatch).decode
_decode_exchange = msgspec.json.Decoder(ExchangeRequest).decode
_decode_shipment = msgspec.json.Decoder(LogShipment).decode
_decode_replay = msgspec.json.Decoder(ReplayRequest).decode
_decode_choice = msgspec.json.Decoder(DeadLetterChoice).decode
_decode_tenant = msgspec.json.Decoder(TenantRequest).decode
_decode_token = msgspec.json.Decoder(TokenRequest).decode
_decode_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode


class JobBatch(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/jobs:batch`; a bare array of jobs is taken as well."""

    jobs: list[JobRequest]


class _RawBatch(msgspec.Struct, forbid_unknown_fields=True):
    jobs: msgspec.Raw


_decode_raw_batch = msgspec.json.Decoder(_RawBatch).decode


def decode_job(body: bytes) -> JobRequest:
    return _decoded(_decode_job, body, JobRequest)


def decode_patch(body: bytes) -> JobPatch:
    return _decoded(_decode_patch, body, JobPatch)


def decode_exchange(body: bytes) -> ExchangeRequest:
    return _decoded(_decode_exchange, body, ExchangeRequest)


def decode_shipment(body: bytes) -> LogShipment:
    return _decoded(_decode_shipment, body, LogShipment)


def decode_replay(body: bytes) -> ReplayRequest:
    return _decoded(_decode_replay, body, ReplayRequest)


def decode_choice(body: bytes) -> DeadLetterChoice:
    return _decoded(_decode_choice, body, DeadLetterChoice)


def decode_tenant(body: bytes) -> TenantRequest:
    return _decoded(_decode_tenant, body, TenantRequest)


def decode_token(body: bytes) -> TokenRequest:
    return _decoded(_decode_token, body, TokenRequest)


def decode_batch(body: bytes) -> JobBatch:
    """All jobs, or an error that lists what is wrong by index."""
    array: bytes | msgspec.Raw = body
    if not body.lstrip().startswith(b"["):
        array = _decoded(_decode_raw_batch, body, JobBatch).jobs
    try:
        requests = _decode_jobs(array)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _batch_errors(array, error) from None
    if len(requests) > MAX_BATCH:
        raise InvalidInput(
            f"the batch has {len(requests)} jobs", code="batch_too_large", field="jobs", expected=f"at most {MAX_BATCH}"
        )
    return JobBatch(requests)


def _batch_errors(array: bytes | msgspec.Raw, first: Exception) -> MainspringError:
    """Something is wrong somewhere: look at each job by itself."""
    try:
        items = _decode_raws(array)
    except msgspec.ValidationError:
        return InvalidInput("the jobs are not an array", field="jobs", expected="an array of jobs")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return in_words(error, JobRequest)
    problems: list[FieldProblem] = []
    for index, item in enumerate(items):
        try:
            _decode_job(item)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            refusal = in_words(error, JobRequest)
            refusal.field = None if refusal.field == "$" else refusal.field
            problems.append(refusal.as_field_problem(index))
            if len(problems) >= _MAX_ERRORS:
                break
    return InvalidBatch(problems, more=len(problems) >= _MAX_ERRORS) if problems else in_words(first, JobRequest)


def _decoded(decode: Callable[[bytes], T], body: bytes, struct: type[msgspec.Struct]) -> T:
    try:
        return decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise in_words(error, struct) from None


def in_words(error: Exception, struct: type[msgspec.Struct]) -> InvalidInput:
    """The decoder's message as ours: the field's path, what was expected, the nearest known name."""
    text = str(error)
    if isinstance(error, UnicodeDecodeError):
        return InvalidInput("the body is not UTF-8", code="invalid_json", field="$", expected="JSON in UTF-8")
    if isinstance(error, RecursionError):
        return InvalidInput(
            "the body is nested too deeply", code="invalid_json", field="$", hint="store it elsewhere, or flatten it"
        )
    if not isinstance(error, msgspec.ValidationError):
        return InvalidInput(f"the body is not JSON: {text}", code="invalid_json", field="$", expected="a JSON object")
    found = _PATH.search(text)
    path = found.group(1).lstrip(".") if found else ""
    words = text[: found.start()] if found else text
    if unknown := _UNKNOWN.search(text):
        name = unknown.group(1)[:_LONGEST_NAME]
        owner = _NESTED.get(_INDEX.sub("", path).rpartition(".")[2], struct)
        near = _nearest(name, owner)
        return InvalidInput(
            f"unknown field {name!r}",
            code="unknown_field",
            field=f"{path}.{name}" if path else name,
            hint=f"did you mean {near!r}?" if near else "known are: " + ", ".join(owner.__struct_fields__),
        )
    if missing := _MISSING.match(text):
        name = missing.group(1)
        return InvalidInput(f"{name} is missing", field=f"{path}.{name}" if path else name, hint=f"give {name}")
    expected = words.removeprefix("Expected ").split(", got ")[0] if words.startswith("Expected ") else None
    return InvalidInput(words.replace("`", ""), field=path or "$", expected=expected and expected.replace("`", ""))


def _nearest(name: str, owner: type[msgspec.Struct]) -> str | None:
    """The known name that was meant: the same one a level down (`every`: schedule.every), or one spelt alike."""
    for part in ("retry", "misfire", "schedule", "limits", "http"):
        if part in owner.__struct_fields__ and name in _NESTED[part].__struct_fields__:
            return f"{part}.{name}"
    close = difflib.get_close_matches(name, owner.__struct_fields__, n=1, cutoff=0.6)
    return close[0] if close else None


class Body(AbstractDTO[T]):
    """Lets a handler declare `data: SomeStruct` for the OpenAPI schema while our own decoders read the bytes."""

    @staticmethod
    def decode(body: bytes) -> Any:
        raise NotImplementedError

    def decode_bytes(self, value: bytes) -> Any:
        return self.decode(value)

    def data_to_encodable_type(self, data: Any) -> Any:
        return data

    @classmethod
    def create_for_field_definition(cls, *_args: Any, **_kwargs: Any) -> None:
        """No transfer model: the struct is the model."""

    @classmethod
    def create_openapi_schema(cls, field_definition: FieldDefinition, handler_id: str, schema_creator: Any) -> Any:
        return schema_creator.for_field_definition(field_definition)

    @classmethod
    def is_supported_model_type_field(cls, field_definition: FieldDefinition) -> bool:
        return True

    @classmethod
    def generate_field_definitions(cls, model_type: type[Any]) -> Generator[DTOFieldDefinition, None, None]:
        yield from ()

    @classmethod
    def detect_nested_field(cls, field_definition: FieldDefinition) -> bool:
        return False


class JobBody(Body[JobRequest]):
    decode = staticmethod(decode_job)


class PatchBody(Body[JobPatch]):
    decode = staticmethod(decode_patch)


class BatchBody(Body[JobBatch]):
    decode = staticmethod(decode_batch)


class ExchangeBody(Body[ExchangeRequest]):
    decode = staticmethod(decode_exchange)


class ShipmentBody(Body[LogShipment]):
    decode = staticmethod(decode_shipment)


class ReplayBody(Body[ReplayRequest]):
    decode = staticmethod(decode_replay)


class ChoiceBody(Body[DeadLetterChoice]):
    decode = staticmethod(decode_choice)


class TenantBody(Body[TenantRequest]):
    decode = staticmethod(decode_tenant)


class TokenBody(Body[TokenRequest]):
    decode = staticmethod(decode_token)
