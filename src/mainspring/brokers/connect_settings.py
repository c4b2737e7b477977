"""The file of a connector: which sources it reads, and what becomes of their messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Meta

from mainspring.brokers.addresses import SCHEMES
from mainspring.brokers.templates import check_template
from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.decoding_errors import in_words
from mainspring.wire.jobs import JobRequest

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
KINDS = {scheme: kind for kind, schemes in SCHEMES.items() for scheme in schemes}
# What each broker reads from, and which other settings it has.
_PLACES = {"redis": "stream", "nats": "stream", "rabbitmq": "queue", "kafka": "topic"}
_OWN = {
    "redis": {"group", "start", "field"},
    "nats": {"group", "start", "subject"},
    "rabbitmq": {"prefetch"},
    "kafka": {"group", "start"},
}
_NOT_OF_MESSAGES = frozenset({"command", "idempotency_key"})
MOST_SOURCES = 100
FORMATS = ("json", "text", "base64")
STARTS = ("beginning", "end")
Name = Annotated[str, Meta(min_length=1, max_length=200)]


class EmitIn(msgspec.Struct, forbid_unknown_fields=True):
    """An event for each message. What is left out is that of the message."""

    name: Any = msgspec.UNSET
    key: Any = msgspec.UNSET
    id: Any = msgspec.UNSET
    payload: Any = msgspec.UNSET


class SourceIn(msgspec.Struct, forbid_unknown_fields=True, rename={"format_": "format"}):
    name: Annotated[str, Meta(min_length=1, max_length=100)]
    url: Annotated[str, Meta(min_length=1, max_length=2000)]
    stream: Name | None = None
    topic: Name | None = None
    queue: Name | None = None
    group: Name | None = None
    subject: Name | None = None
    field: Name | None = None
    start: str | None = None
    prefetch: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    format_: str = "json"
    emit: EmitIn | None = None
    submit: dict[str, Any] | None = None


class FileIn(msgspec.Struct, forbid_unknown_fields=True):
    sources: Annotated[list[SourceIn], Meta(min_length=1, max_length=MOST_SOURCES)]


class SourceSettings(msgspec.Struct, frozen=True):
    """A source. url: with its password; `shown_url` is for messages. place: the stream, queue or topic. emit, submit:
    one of both."""

    name: str
    kind: str
    url: str
    place: str
    group: str
    start: str
    format: str
    subject: str | None = None
    field: str | None = None
    prefetch: int = 500
    emit: EmitIn | None = None
    submit: dict[str, Any] | None = None

    @property
    def shown_url(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def without_password(self, text: str) -> str:
        """A message of the library of the broker, which might name the URL."""
        secret = urlsplit(self.url).netloc.rpartition("@")[0].partition(":")[2]
        return text.replace(secret, "***").replace(unquote(secret), "***") if secret else text


def read_sources(given: Mapping[str, Any], environ: Mapping[str, str]) -> list[SourceSettings]:
    """The sources of a file. Raises InvalidInput that names the field."""
    try:
        file = msgspec.convert(given, FileIn)
    except msgspec.ValidationError as error:
        wrong = in_words(error, FileIn, {"sources": SourceIn, "emit": EmitIn})
        hint = "; ".join(filter(None, (wrong.hint, "docs/connect.md has all settings")))
        raise InvalidInput(wrong.detail, field=wrong.field, expected=wrong.expected, hint=hint) from None
    found: list[SourceSettings] = []
    for index, source in enumerate(file.sources):
        where = f"sources[{index}]"
        if any(other.name == source.name for other in found):
            raise InvalidInput(f"{where}: there are two sources {source.name!r}", field=f"{where}.name")
        found.append(_source(source, where, environ))
    return found


def _source(source: SourceIn, where: str, environ: Mapping[str, str]) -> SourceSettings:
    url = _expanded(source.url, f"{where}.url", environ)
    kind = _kind_of(url, f"{where}.url")
    own = {_PLACES[kind], *_OWN[kind]}
    for setting in ("stream", "topic", "queue", "group", "subject", "field", "start", "prefetch"):
        if getattr(source, setting) is not None and setting not in own:
            raise _wrong(f"{where}.{setting}", f"a source of {kind} has no {setting}", ", ".join(sorted(own)))
    place = getattr(source, _PLACES[kind])
    if place is None:
        raise _wrong(f"{where}.{_PLACES[kind]}", f"a source of {kind} needs the {_PLACES[kind]} that it reads")
    _check_word(source.start, STARTS, f"{where}.start")
    _check_word(source.format_, FORMATS, f"{where}.format")
    if (source.emit is None) == (source.submit is None):
        raise _wrong(where, f"the source {source.name!r} needs either emit or submit")
    if source.emit is not None:
        for field in source.emit.__struct_fields__:
            check_template(getattr(source.emit, field), f"{where}.emit.{field}")
    if source.submit is not None:
        _check_job(source.submit, f"{where}.submit")
    return SourceSettings(
        source.name, kind, url, place, source.group or "mainspring", source.start or STARTS[0], source.format_,
        source.subject, source.field, source.prefetch or 500, source.emit, source.submit,
    )  # fmt: skip


def _check_job(job: Mapping[str, Any], where: str) -> None:
    known = {field.encode_name for field in msgspec.structs.fields(JobRequest)}
    for field, value in job.items():
        if field not in known:
            raise _wrong(f"{where}.{field}", f"a job has no field {field!r}")
        check_template(value, f"{where}.{field}")
        if field in _NOT_OF_MESSAGES and (field == "idempotency_key" or _refers(value)):
            raise _wrong(f"{where}.{field}", f"{field} cannot come from a message")
    if not known & job.keys() & {"task", "command", "http", "sql"}:
        raise _wrong(f"{where}.task", "the job needs a task")


def _refers(value: Any) -> bool:
    if isinstance(value, dict):
        return "$from" in value or any(map(_refers, value.values()))
    return isinstance(value, list) and any(map(_refers, value))


def _kind_of(url: str, field: str) -> str:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, None if "," in parts.netloc else parts.port
    except ValueError:
        raise _wrong(field, "it is no URL") from None
    if parts.scheme not in KINDS or not host:
        raise _wrong(field, "it is no URL of a broker", "such as redis://127.0.0.1:6379, nats://, amqp:// or kafka://")
    return KINDS[parts.scheme]


def _expanded(url: str, field: str, environ: Mapping[str, str]) -> str:
    """The URL with the values of variables such as ${REDIS_PASSWORD}."""

    def value(found: re.Match[str]) -> str:
        if (text := environ.get(found[1])) is None:
            raise _wrong(field, f"the variable {found[1]} is not set")
        return text

    return _VARIABLE.sub(value, url)


def _check_word(given: str | None, words: tuple[str, ...], field: str) -> None:
    if given is not None and given not in words:
        raise _wrong(field, f"{given!r} is unknown", ", ".join(words))


def _wrong(field: str, detail: str, expected: str | None = None) -> InvalidInput:
    return InvalidInput(f"{field}: {detail}", field=field, expected=expected)
