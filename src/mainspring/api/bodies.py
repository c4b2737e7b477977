"""Bodies: JSON to wire structs, and every way in which that can fail put in words with the field's path."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

import msgspec
from litestar.dto import AbstractDTO, DTOFieldDefinition
from litestar.typing import FieldDefinition

from mainspring.api.large_batch import AT_ONCE, UNREADABLE, JobBatch, RawBatch, Undecoded, is_large, too_many_jobs
from mainspring.api.large_exchange import check_counts, too_many
from mainspring.api.wording import in_words
from mainspring.domain.errors import PayloadTooLarge
from mainspring.kernel.config import MAX_BATCH
from mainspring.wire.access import TenantRequest, TokenRequest
from mainspring.wire.applications import DeclarationRequest
from mainspring.wire.backfills import BackfillCancel, BackfillPatch, BackfillRequest
from mainspring.wire.bulk import DeadLettersAct, JobsAct, RunsAct
from mainspring.wire.calendars import CalendarRequest
from mainspring.wire.death_notice import DeathNotice
from mainspring.wire.exchange import ExchangeRequest
from mainspring.wire.gates import GateRequest, PauseRequest
from mainspring.wire.jobs import JobPatch, JobRequest, Nothing, RunNowRequest
from mainspring.wire.limits import LimitRequest
from mainspring.wire.logs import LogShipment
from mainspring.wire.preview import PreviewRequest
from mainspring.wire.runs import DeadLetterChoice, ReplayRequest
from mainspring.wire.sessions import SignInRequest

T = TypeVar("T")

_MAY_HAVE_MANY = 256 * 1024  # bytes; a shorter body cannot be over a bound
_MOST_PARTS = 256 * 1024  # arrays and objects: 40 ms at worst. No payload has more.
_MOST_CHUNKS = 4000

_decode_job = msgspec.json.Decoder(JobRequest).decode
_decode_jobs = msgspec.json.Decoder(list[JobRequest]).decode
_decode_patch = msgspec.json.Decoder(JobPatch).decode
_decode_exchange = msgspec.json.Decoder(ExchangeRequest).decode
_decode_shipment = msgspec.json.Decoder(LogShipment).decode
_decode_replay = msgspec.json.Decoder(ReplayRequest).decode
_decode_run_now = msgspec.json.Decoder(RunNowRequest).decode
_decode_choice = msgspec.json.Decoder(DeadLetterChoice).decode
_decode_tenant = msgspec.json.Decoder(TenantRequest).decode
_decode_notice = msgspec.json.Decoder(DeathNotice).decode
_decode_declaration = msgspec.json.Decoder(DeclarationRequest).decode
_decode_token = msgspec.json.Decoder(TokenRequest).decode
_decode_calendar = msgspec.json.Decoder(CalendarRequest).decode
_decode_sign_in = msgspec.json.Decoder(SignInRequest).decode
_decode_limit = msgspec.json.Decoder(LimitRequest).decode
_decode_gate = msgspec.json.Decoder(GateRequest).decode
_decode_pause = msgspec.json.Decoder(PauseRequest).decode
_decode_preview = msgspec.json.Decoder(PreviewRequest).decode
_decode_backfill = msgspec.json.Decoder(BackfillRequest).decode
_decode_backfill_patch = msgspec.json.Decoder(BackfillPatch).decode
_decode_backfill_cancel = msgspec.json.Decoder(BackfillCancel).decode
_decode_jobs_act = msgspec.json.Decoder(JobsAct).decode
_decode_runs_act = msgspec.json.Decoder(RunsAct).decode
_decode_letters_act = msgspec.json.Decoder(DeadLettersAct).decode
_decode_nothing = msgspec.json.Decoder(Nothing).decode
_decode_batch = msgspec.json.Decoder(JobBatch).decode
_decode_raw_batch = msgspec.json.Decoder(RawBatch).decode


def decode_job(body: bytes) -> JobRequest:
    return decoded(_decode_job, body, JobRequest)


def decode_calendar(body: bytes) -> CalendarRequest:
    return decoded(_decode_calendar, body, CalendarRequest)


def decode_patch(body: bytes) -> JobPatch:
    return decoded(_decode_patch, body, JobPatch)


def decode_exchange(body: bytes) -> ExchangeRequest | Undecoded:
    """The exchange, or the body as it came when it is large."""
    if len(body) > AT_ONCE:
        return Undecoded(body)
    request = decoded(_decode_exchange, body, ExchangeRequest)
    if len(body) > _MAY_HAVE_MANY:
        check_counts(request)
    return request


def decode_shipment(body: bytes) -> LogShipment:
    shipment = decoded(_decode_shipment, body, LogShipment)
    if len(shipment.chunks) > _MOST_CHUNKS:
        raise too_many("chunks", _MOST_CHUNKS)
    return shipment


def decode_replay(body: bytes) -> ReplayRequest:
    return decoded(_decode_replay, body, ReplayRequest)


def decode_run_now(body: bytes) -> RunNowRequest:
    return decoded(_decode_run_now, body, RunNowRequest)


def decode_choice(body: bytes) -> DeadLetterChoice:
    return decoded(_decode_choice, body, DeadLetterChoice)


def decode_tenant(body: bytes) -> TenantRequest:
    return decoded(_decode_tenant, body, TenantRequest)


def decode_notice(body: bytes) -> DeathNotice:
    return decoded(_decode_notice, body, DeathNotice)


def decode_declaration(body: bytes) -> DeclarationRequest:
    return decoded(_decode_declaration, body, DeclarationRequest)


def decode_token(body: bytes) -> TokenRequest:
    return decoded(_decode_token, body, TokenRequest)


def decode_sign_in(body: bytes) -> SignInRequest:
    return decoded(_decode_sign_in, body, SignInRequest)


def decode_limit(body: bytes) -> LimitRequest:
    return decoded(_decode_limit, body, LimitRequest)


def decode_gate(body: bytes) -> GateRequest:
    return decoded(_decode_gate, body, GateRequest)


def decode_pause(body: bytes) -> PauseRequest:
    return decoded(_decode_pause, body, PauseRequest)


def decode_preview(body: bytes) -> PreviewRequest:
    return decoded(_decode_preview, body, PreviewRequest)


def decode_backfill(body: bytes) -> BackfillRequest:
    return decoded(_decode_backfill, body, BackfillRequest)


def decode_backfill_patch(body: bytes) -> BackfillPatch:
    return decoded(_decode_backfill_patch, body, BackfillPatch)


def decode_backfill_cancel(body: bytes) -> BackfillCancel:
    return decoded(_decode_backfill_cancel, body, BackfillCancel)


def decode_jobs_act(body: bytes) -> JobsAct:
    return decoded(_decode_jobs_act, body, JobsAct)


def decode_runs_act(body: bytes) -> RunsAct:
    return decoded(_decode_runs_act, body, RunsAct)


def decode_letters_act(body: bytes) -> DeadLettersAct:
    return decoded(_decode_letters_act, body, DeadLettersAct)


def decode_nothing(body: bytes) -> Nothing:
    return decoded(_decode_nothing, body, Nothing)


def decode_batch(body: bytes) -> JobBatch | Undecoded:
    """The jobs, or the body as it came when it is large or when something is wrong with it."""
    if is_large(body):
        return Undecoded(body)
    bare = body.lstrip().startswith(b"[")
    try:
        requests = _decode_jobs(body) if bare else _decode_batch(body).jobs
    except UNREADABLE:
        if not bare:
            decoded(_decode_raw_batch, body, JobBatch)  # raises if not only the jobs are wrong
        return Undecoded(body)
    if len(requests) > MAX_BATCH:
        raise too_many_jobs(len(requests))
    return JobBatch(requests)


def decoded(decode: Callable[[bytes], T], body: bytes, struct: type[msgspec.Struct]) -> T:
    if len(body) > _MAY_HAVE_MANY and body.count(b"[") + body.count(b"{") > _MOST_PARTS:
        raise PayloadTooLarge(
            "the body has too many arrays and objects", field="$", expected=f"at most {_MOST_PARTS}",
            hint="store it elsewhere and send a reference",
        )  # fmt: skip
    try:
        return decode(body)
    except UNREADABLE as error:
        raise in_words(error, struct) from None


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


class GateBody(Body[GateRequest]):
    decode = staticmethod(decode_gate)


class PauseBody(Body[PauseRequest]):
    decode = staticmethod(decode_pause)


class PreviewBody(Body[PreviewRequest]):
    decode = staticmethod(decode_preview)


class NoBody(Body[Nothing]):
    decode = staticmethod(decode_nothing)


class ExchangeBody(Body[ExchangeRequest]):
    decode = staticmethod(decode_exchange)


class ShipmentBody(Body[LogShipment]):
    decode = staticmethod(decode_shipment)


class ReplayBody(Body[ReplayRequest]):
    decode = staticmethod(decode_replay)


class RunNowBody(Body[RunNowRequest]):
    decode = staticmethod(decode_run_now)


class ChoiceBody(Body[DeadLetterChoice]):
    decode = staticmethod(decode_choice)


class BackfillBody(Body[BackfillRequest]):
    decode = staticmethod(decode_backfill)


class BackfillPatchBody(Body[BackfillPatch]):
    decode = staticmethod(decode_backfill_patch)


class BackfillCancelBody(Body[BackfillCancel]):
    decode = staticmethod(decode_backfill_cancel)


class JobsActBody(Body[JobsAct]):
    decode = staticmethod(decode_jobs_act)


class RunsActBody(Body[RunsAct]):
    decode = staticmethod(decode_runs_act)


class LettersActBody(Body[DeadLettersAct]):
    decode = staticmethod(decode_letters_act)


class TenantBody(Body[TenantRequest]):
    decode = staticmethod(decode_tenant)


class TokenBody(Body[TokenRequest]):
    decode = staticmethod(decode_token)


class SignInBody(Body[SignInRequest]):
    decode = staticmethod(decode_sign_in)


class LimitBody(Body[LimitRequest]):
    decode = staticmethod(decode_limit)


class CalendarBody(Body[CalendarRequest]):
    decode = staticmethod(decode_calendar)


class DeclarationBody(Body[DeclarationRequest]):
    decode = staticmethod(decode_declaration)


class DeathNoticeBody(Body[DeathNotice]):
    decode = staticmethod(decode_notice)
