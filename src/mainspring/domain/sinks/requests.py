"""Which settings a sink has, and which changes it wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidInput, NotFound
from mainspring.domain.notify.channel_kinds import check_url
from mainspring.domain.notify.rules import MOST_LABELS
from mainspring.domain.sizes import parse_size
from mainspring.domain.texts import check_line, check_prose, shown
from mainspring.wire.fields import LONGEST_NOTE
from mainspring.wire.sinks import CHANGES, GROUPS, SINK_SECRETS, SinkRequest

MOST_SINKS = 20
KEEP, MOST_KEEP = 7 * 86400.0, 90 * 86400.0
KEEP_BYTES, LEAST_KEEP_BYTES, MOST_KEEP_BYTES = 256 * 1024**2, 1024**2, 64 * 1024**3
MOST_BATCH = 500
_CONNECTION = ("url", "topic", "exchange", "user", "batch", "description", *SINK_SECRETS)


@dataclass(frozen=True, slots=True)
class SinkKind:
    """needs: beside `url`. may: the other fields of the connection that it has."""

    needs: tuple[str, ...]
    may: tuple[str, ...] = ()


KINDS = {
    "webhook": SinkKind(("secret",), ("batch",)),
    "kafka": SinkKind(("topic",), ("user", "password")),
    "nats": SinkKind(("topic",), ("user", "password", "token")),
    "rabbitmq": SinkKind(("topic",), ("exchange", "user", "password")),
    "redis": SinkKind(("topic",), ("user", "password")),
}


def no_sink(name: str) -> NotFound:
    return NotFound(f"there is no sink {name!r}", hint="see GET /v1/sinks")


def divided(request: SinkRequest) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings of the connection that may be shown, and the secret ones."""
    given = {name: value for name in _CONNECTION if (value := getattr(request, name)) is not None}
    secrets = {name: str(given.pop(name)) for name in SINK_SECRETS if name in given}
    return given, secrets


def place_of(kind: str, settings: Mapping[str, Any]) -> tuple[Any, ...]:
    """Where the secrets of a sink are sent."""
    return kind, settings.get("url"), settings.get("user")


def check_sink(request: SinkRequest, kept: frozenset[str]) -> None:
    """Raise InvalidInput that names the field. `kept`: the secret fields that have a value already."""
    kind = KINDS.get(request.kind)
    if kind is None:
        raise InvalidInput(f"there is no kind of sink {shown(request.kind)}", field="kind", expected=", ".join(KINDS))
    settings, secrets = divided(request)
    has = {"url", "description", *kind.needs, *kind.may}
    for name in (*settings, *secrets):
        if name not in has:
            fields = ", ".join(("url", *kind.needs, *kind.may))
            raise InvalidInput(f"a sink of kind {request.kind} has no {name}", field=name, hint=f"it has {fields}")
    for name in kind.needs:
        if name not in settings and name not in secrets and name not in kept:
            raise InvalidInput(f"a sink of kind {request.kind} needs {name}", field=name)
    if ("password" in secrets or "password" in kept) and request.user is None and request.kind != "redis":
        raise InvalidInput("a password needs a user", field="user")
    if request.user is not None and "password" not in secrets and "password" not in kept:
        raise InvalidInput("a user needs a password", field="password")
    if request.kind == "webhook":
        check_url(request.url, "url")
    if request.batch is not None and not 1 <= request.batch <= MOST_BATCH:
        raise InvalidInput(f"batch is {request.batch}", field="batch", expected=f"1 to {MOST_BATCH}")
    _check_texts(request, secrets)


def _check_texts(request: SinkRequest, secrets: Mapping[str, str]) -> None:
    for name in ("topic", "exchange", "user", "queue", "task", "job"):
        if (text := getattr(request, name)) is not None:
            check_line(text, name)
    if request.kind == "nats" and request.topic is not None:
        tokens = request.topic.split(".")
        if any(not token or token in "*>" or " " in token for token in tokens) or not request.topic.isascii():
            raise InvalidInput(f"{shown(request.topic)} is not a subject", field="topic", expected="mainspring.changes")
    if request.kind == "kafka" and not all(c.isascii() and (c.isalnum() or c in "._-") for c in request.topic or ""):
        raise InvalidInput(f"{shown(request.topic)} is not a topic", field="topic", expected="mainspring-changes")
    if request.description is not None:
        check_prose(request.description, "description")
        if len(request.description) > LONGEST_NOTE:
            raise InvalidInput("the description is too long", field="description", expected=f"at most {LONGEST_NOTE}")
    for name, value in secrets.items():
        if not value or not value.isprintable():  # the message must not have the value
            raise InvalidInput(f"{name} is empty or has a control character", field=name, expected="one line of text")


class SinkFilter(msgspec.Struct, frozen=True):
    """Which changes a sink wants, and how many may wait. changes: None for all."""

    changes: list[str] | None
    queue: str | None
    task: str | None
    job: str | None
    labels: dict[str, str]
    keep_seconds: int
    keep_bytes: int


def read_filter(request: SinkRequest) -> SinkFilter:
    """Raises InvalidInput that names the field."""
    for index, word in enumerate(request.on or ()):
        if word not in CHANGES and word not in GROUPS:
            raise InvalidInput(
                f"there is no change {shown(word)}", field=f"on[{index}]", expected=", ".join((*GROUPS, *CHANGES))
            )
    labels = request.labels or {}
    if len(labels) > MOST_LABELS:
        raise InvalidInput(f"labels has {len(labels)} labels", field="labels", expected=f"at most {MOST_LABELS}")
    for name, value in labels.items():
        check_line(name, "labels")
        check_line(value, f"labels.{name}")
    keep = KEEP if request.keep is None else parse_duration(request.keep, "keep", most=MOST_KEEP, zero_ok=False)
    size = KEEP_BYTES if request.keep_size is None else parse_size(request.keep_size, "keep_size")
    if keep < 60:
        raise InvalidInput("keep is too short", field="keep", expected="1m to 90d")
    if not LEAST_KEEP_BYTES <= size <= MOST_KEEP_BYTES:
        raise InvalidInput(f"keep_size is {size}", field="keep_size", expected="1MiB to 64GiB")
    changes = None if request.on is None else sorted(set(request.on))
    return SinkFilter(changes, request.queue, request.task, request.job, labels, int(keep), size)
