"""The kinds of channels: which fields each has, which it needs, and which are secret."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from mainspring.domain.errors import InvalidInput, NotFound
from mainspring.domain.notify.apprise_urls import check_apprise_url
from mainspring.domain.texts import check_line, check_prose, shown
from mainspring.wire.channels import CHANNEL_SECRETS, ChannelRequest
from mainspring.wire.fields import LONGEST_NOTE
from mainspring.wire.formats import ChosenJobId

MOST_RECIPIENTS = 50
MOST_LOG_LINES = 20
SECRET_FIELDS = frozenset(CHANNEL_SECRETS)
_ADDRESS = re.compile(r"[^@\s<>,;:\"()\[\]\\]+@[^@\s<>,;:\"()\[\]\\]+\Z")
_PHONE = re.compile(r"\+?[0-9]{5,20}\Z", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9._:-]{1,253}\Z", re.ASCII)
_SID = re.compile(r"[A-Za-z0-9]{1,64}\Z", re.ASCII)
_BOT_TOKEN = re.compile(r"[A-Za-z0-9:_-]{1,200}\Z", re.ASCII)
_HEADER_VALUE = re.compile(r"[\x21-\x7e]+\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class ChannelKind:
    """needs: the fields without which it cannot send. may: the others that it has. `to` is one recipient or several."""

    needs: tuple[str, ...]
    may: tuple[str, ...] = ()
    most_recipients: int = 1

    @property
    def fields(self) -> frozenset[str]:
        return frozenset((*self.needs, *self.may, "kind", "description", "log_lines"))


APPRISE = "apprise"
KINDS = {
    "mail": ChannelKind(("host", "sender", "to"), ("port", "tls", "user", "password"), MOST_RECIPIENTS),
    "webhook": ChannelKind(("url", "secret")),
    "slack": ChannelKind(("webhook_url",)),
    "teams": ChannelKind(("webhook_url",)),
    "discord": ChannelKind(("webhook_url",)),
    "telegram": ChannelKind(("bot_token", "chat_id"), ("url",)),
    "pagerduty": ChannelKind(("routing_key",), ("region", "url")),
    "opsgenie": ChannelKind(("api_key",), ("region", "url")),
    "twilio": ChannelKind(("account_sid", "auth_token", "sender", "to"), ("url",)),
    APPRISE: ChannelKind(("apprise_url",)),
}
_WRITTEN = {"sender": "from"}


def check_name(name: str, what: str, field: str = "name") -> str:
    """Raise InvalidInput unless `name` can be that of a channel or a rule. Such a name has no line break."""
    try:
        checked: str = msgspec.convert(name, ChosenJobId)
    except msgspec.ValidationError:
        checked = ""
    if checked in ("", ".", "..") or "\n" in checked:
        raise InvalidInput(
            f"{shown(name)} cannot be the name of a {what}", field=field,
            expected="at most 200 letters, digits, and . _ -",
        )  # fmt: skip
    return checked


def no_channel(name: str) -> NotFound:
    return NotFound(f"there is no channel {name!r}", hint="see GET /v1/channels")


def divided(request: ChannelRequest) -> tuple[dict[str, object], dict[str, str]]:
    """The fields that may be shown, and the secret ones."""
    given = {
        name: value for name in request.__struct_fields__ if (value := getattr(request, name)) not in (None, [])
    }  # fmt: skip
    secrets = {name: str(given.pop(name)) for name in SECRET_FIELDS & given.keys()}
    given.pop("kind")
    return given, secrets


def check_channel(request: ChannelRequest, kept: frozenset[str] = frozenset()) -> None:
    """Raise InvalidInput that names the field. `kept`: the secret fields that have a value already."""
    kind = KINDS.get(request.kind)
    if kind is None:
        raise InvalidInput(
            f"there is no kind of channel {shown(request.kind)}", field="kind", expected=", ".join(KINDS)
        )
    public, secrets = divided(request)
    for name in sorted((public.keys() | secrets.keys()) - kind.fields):
        raise InvalidInput(
            f"a channel of kind {request.kind} has no {_said(name)}", field=_said(name),
            hint=f"it has {', '.join(_said(one) for one in (*kind.needs, *kind.may))}",
        )  # fmt: skip
    for name in kind.needs:
        if name not in public and name not in secrets and name not in kept:
            raise InvalidInput(f"a channel of kind {request.kind} needs {_said(name)}", field=_said(name))
    _check_texts(public, secrets)
    _check_recipients(request, kind)
    _check_values(request, kept)


def _said(name: str) -> str:
    return _WRITTEN.get(name, name)


def _check_texts(public: dict[str, object], secrets: dict[str, str]) -> None:
    for name, value in public.items():
        if name == "description":
            check_prose(str(value), name)
            if len(str(value)) > LONGEST_NOTE:
                raise InvalidInput("the description is too long", field=name, expected=f"at most {LONGEST_NOTE}")
        elif isinstance(value, str):
            check_line(value, _said(name))
    for name, secret in secrets.items():
        if not secret or not secret.isprintable():  # the message must not have the value
            raise InvalidInput(f"{name} is empty or has a control character", field=name, expected="one line of text")


def _check_recipients(request: ChannelRequest, kind: ChannelKind) -> None:
    if request.to is None:
        return
    if len(request.to) > kind.most_recipients:
        raise InvalidInput(
            f"to has {len(request.to)} recipients", field="to", expected=f"at most {kind.most_recipients}",
            hint="make another channel for the others" if kind.most_recipients == 1 else None,
        )  # fmt: skip
    for index, one in enumerate([*request.to, request.sender or ""]):
        field = "from" if index == len(request.to) else f"to[{index}]"
        if request.kind == "mail" and not (_ADDRESS.match(one) and one.isascii() and one.isprintable()):
            raise InvalidInput(f"{shown(one)} is not a mail address", field=field, expected="name@example.com")
        if request.kind == "twilio" and not _PHONE.match(one):
            raise InvalidInput(f"{shown(one)} is not a phone number", field=field, expected="+491701234567")


def _check_values(request: ChannelRequest, kept: frozenset[str]) -> None:
    for name in ("url", "webhook_url"):
        if (url := getattr(request, name)) is not None:
            check_url(url, name)
    if request.log_lines is not None and not 0 <= request.log_lines <= MOST_LOG_LINES:
        raise InvalidInput(f"{request.log_lines} lines", field="log_lines", expected=f"0 to {MOST_LOG_LINES}")
    if request.apprise_url is not None:
        check_apprise_url(request.apprise_url)
    if request.kind == "mail":
        if request.host is not None and not _HOST.match(request.host):
            raise InvalidInput(f"{shown(request.host)} is not a host", field="host", expected="smtp.example.com")
        if request.port is not None and not 1 <= request.port <= 65535:
            raise InvalidInput(f"{request.port} is not a port", field="port", expected="1 to 65535")
        has_password = request.password is not None or "password" in kept
        if request.tls == "none" and has_password:
            raise InvalidInput(
                "a password is not sent without TLS", field="tls", expected="starttls or tls",
            )  # fmt: skip
        if has_password != (request.user is not None):
            missing = "user" if has_password else "password"
            raise InvalidInput(f"user and password belong together, and {missing} is missing", field=missing)
    if request.account_sid is not None and not _SID.match(request.account_sid):
        raise InvalidInput("account_sid has characters that no Twilio account has", field="account_sid")
    if request.bot_token is not None and not _BOT_TOKEN.match(request.bot_token):
        raise InvalidInput("bot_token has characters that no Telegram token has", field="bot_token")
    if request.api_key is not None and not _HEADER_VALUE.match(request.api_key):
        raise InvalidInput("api_key has characters that no header can have", field="api_key")


def check_url(url: str, field: str) -> None:
    """Raise InvalidInput unless it is an address that can be called. The message does not have the address."""
    try:
        parts = urlsplit(url)
        port_ok = parts.port is None or parts.port > 0
    except ValueError:
        parts, port_ok = urlsplit(""), False
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_ok or not url.isascii():
        raise InvalidInput(f"{field} is not an address", field=field, expected="https://example.com/hook")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput(f"{field} has a user or a password in it", field=field, hint="leave them out")
