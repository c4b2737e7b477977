"""Messages about channels: where people are told what has happened."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from mainspring.wire.formats import Name
from mainspring.wire.states import words

CHANNEL_KINDS = (
    *("mail", "webhook", "slack", "teams", "discord", "telegram", "pagerduty", "opsgenie", "twilio"),
    "apprise",
)
ChannelKindWord = Annotated[str, words("ChannelKind", *CHANNEL_KINDS)]
MailTlsWord = Annotated[str, words("MailTls", "starttls", "tls", "none")]
RegionWord = Annotated[str, words("Region", "us", "eu")]
# The values of these fields are never in an answer.
WriteOnly = Annotated[str, Meta(max_length=2000, extra_json_schema={"writeOnly": True, "format": "password"})]
CHANNEL_SECRETS = (
    *("webhook_url", "secret", "password", "bot_token", "routing_key", "api_key", "auth_token"),
    "apprise_url",
)
ChannelUrl = Annotated[str, Meta(max_length=2000, description="http:// or https://, without a user and password.")]


class ChannelRequest(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename={"sender": "from"}
):
    """The body of `PUT /v1/channels/{name}`. Which fields a kind has, needs and keeps secret is in
    docs/notifications.md. A secret field that is left out keeps its value. log_lines: how many lines of the output of a
    run messages have."""

    kind: ChannelKindWord
    description: str | None = None
    url: ChannelUrl | None = None
    webhook_url: WriteOnly | None = None
    secret: WriteOnly | None = None
    host: Name | None = None
    port: int | None = None
    tls: MailTlsWord | None = None
    user: Name | None = None
    password: WriteOnly | None = None
    sender: Name | None = None
    to: list[Name] | None = None
    bot_token: WriteOnly | None = None
    chat_id: Name | None = None
    routing_key: WriteOnly | None = None
    api_key: WriteOnly | None = None
    region: RegionWord | None = None
    account_sid: Name | None = None
    auth_token: WriteOnly | None = None
    apprise_url: WriteOnly | None = None
    log_lines: int | None = None


class ChannelView(msgspec.Struct, omit_defaults=True, rename={"sender": "from"}):
    """A channel. secrets: the names of the secret fields that are set. Their values are not shown."""

    name: str
    kind: ChannelKindWord
    version: int
    created_at: datetime
    updated_at: datetime
    updated_by: str
    secrets: list[str] = []
    description: str | None = None
    url: str | None = None
    host: str | None = None
    port: int | None = None
    tls: MailTlsWord | None = None
    user: str | None = None
    sender: str | None = None
    to: list[str] = []
    chat_id: str | None = None
    region: RegionWord | None = None
    account_sid: str | None = None
    log_lines: int | None = None


class ChannelList(msgspec.Struct):
    channels: list[ChannelView]
    next: str | None = None


class ChannelTested(msgspec.Struct, omit_defaults=True):
    """What became of a test message. error: why it was not sent. status: the HTTP status of the answer."""

    channel: str
    notification_id: str
    sent: bool
    seconds: float
    error: str | None = None
    status: int | None = None
