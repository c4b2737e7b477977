"""Bodies: JSON to wire structs, and every way in which that can fail put in words with the field's path."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import cache
from types import new_class
from typing import Any, TypeVar

import msgspec
from litestar.dto import AbstractDTO, DTOFieldDefinition
from litestar.typing import FieldDefinition

from mainspring.api.large_batch import AT_ONCE, UNREADABLE, JobBatch, RawBatch, Undecoded, is_large, too_many_jobs
from mainspring.api.large_exchange import check_counts, too_many
from mainspring.domain.errors import PayloadTooLarge
from mainspring.domain.intake.decoding_errors import in_words
from mainspring.kernel.config import MAX_BATCH
from mainspring.wire.applications import MOST_SCHEDULES, DeclarationRequest
from mainspring.wire.exchange import ExchangeRequest
from mainspring.wire.jobs import JobRequest
from mainspring.wire.logs import LogShipment

T = TypeVar("T")

_MAY_HAVE_MANY = 256 * 1024  # bytes; a shorter body cannot be over a bound
_MOST_PARTS = 256 * 1024  # arrays and objects: 40 ms at worst. No payload has more.
_MOST_CHUNKS = 4000
_OTHER_FIELDS = 100  # commas of a declaration that are not between ids; no valid value has one

_decode_jobs = msgspec.json.Decoder(list[JobRequest]).decode
_decode_exchange = msgspec.json.Decoder(ExchangeRequest).decode
_decode_shipment = msgspec.json.Decoder(LogShipment).decode
_decode_declaration = msgspec.json.Decoder(DeclarationRequest).decode
_decode_batch = msgspec.json.Decoder(JobBatch).decode
_decode_raw_batch = msgspec.json.Decoder(RawBatch).decode


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


def decode_declaration(body: bytes) -> DeclarationRequest:
    """The number of ids is looked at first: each takes longer to check than other texts."""
    if body.count(b",") > MOST_SCHEDULES + _OTHER_FIELDS:
        raise too_many("job_ids", MOST_SCHEDULES)
    return decoded(_decode_declaration, body, DeclarationRequest)


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


@cache
def body_of(struct: type[msgspec.Struct]) -> type[Body[Any]]:
    """The body of a handler that takes `data: struct`."""
    decode = msgspec.json.Decoder(struct).decode
    read = staticmethod(lambda body: decoded(decode, body, struct))
    return new_class(f"{struct.__name__}Body", (Body[struct],), exec_body=lambda names: names.update(decode=read))  # type: ignore[valid-type]


class BatchBody(Body[JobBatch]):
    decode = staticmethod(decode_batch)


class ExchangeBody(Body[ExchangeRequest]):
    decode = staticmethod(decode_exchange)


class ShipmentBody(Body[LogShipment]):
    decode = staticmethod(decode_shipment)


class DeclarationBody(Body[DeclarationRequest]):
    decode = staticmethod(decode_declaration)
