"""How a message is sent by each kind of channel: one HTTP POST, or one mail. No I/O.

A name or an error in a message must not become a mention, a link, a header or another message. So Slack's marks are
escaped, Discord is told not to mention users, Telegram gets plain text, and headers have one line.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from email import policy
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.notify.messages import Message, link_to, one_line, output_of, runbook_of, text_of, title_of
from mainspring.domain.run_key import rfc3339

_encode = msgspec.json.Encoder().encode
_JSON = "application/json"
_PAGERDUTY = {"us": "https://events.pagerduty.com", "eu": "https://events.eu.pagerduty.com"}
_OPSGENIE = {"us": "https://api.opsgenie.com", "eu": "https://api.eu.opsgenie.com"}
_TELEGRAM, _TWILIO = "https://api.telegram.org", "https://api.twilio.com"
_MAIL = policy.SMTP.clone(max_line_length=998)  # lines end in CRLF, and a subject is one line
_LEAST_HIDDEN = 4  # shorter words are in any text
_STANDARD_SECRET = "whsec_"
_PORTS = {"starttls": 587, "tls": 465, "none": 25}


class HttpDelivery(msgspec.Struct, frozen=True):
    """One POST. The URL and the headers may have secrets: nothing logs them. hidden: what is left out of what the
    receiver answers, because it may repeat its request."""

    url: str
    body: bytes
    headers: dict[str, str]
    hidden: tuple[str, ...] = ()


class MailDelivery(msgspec.Struct, frozen=True):
    """One mail to all recipients of the channel. tls: starttls, tls or none."""

    host: str
    port: int
    tls: str
    user: str | None
    password: str | None
    sender: str
    recipients: list[str]
    content: bytes


class AppriseDelivery(msgspec.Struct, frozen=True):
    """One message to apprise. Every part of the URL may be secret: nothing logs it. good: it tells no trouble."""

    url: str
    title: str
    body: str
    good: bool


Delivery = HttpDelivery | MailDelivery | AppriseDelivery


def delivery_of(
    kind: str, settings: Mapping[str, Any], secrets: Mapping[str, str], message: Message, timestamp: int
) -> Delivery:
    """The message as this channel sends it. timestamp: of this attempt, in seconds."""
    delivery = _delivery_of(kind, settings, secrets, message, timestamp)
    if isinstance(delivery, HttpDelivery):
        return msgspec.structs.replace(delivery, hidden=_hidden(secrets.values(), delivery))
    return delivery


def without_hidden(text: str, hidden: Iterable[str]) -> str:
    """The text without these words, the longest first."""
    for word in sorted(hidden, key=len, reverse=True):
        text = text.replace(word, "***")
    return text


def _hidden(secrets: Iterable[str], delivery: HttpDelivery) -> tuple[str, ...]:
    """The secrets, as they may be repeated: whole, quoted, as parts of a path, or encoded for Basic."""
    found: set[str] = set()
    for secret in secrets:
        parts = urlsplit(secret) if "://" in secret else None
        pieces = [secret] if parts is None else [secret, parts.path, parts.query, *parts.path.split("/")]
        found.update(form for piece in pieces for form in (piece, quote(piece, safe=""), unquote(piece)))
    scheme, _, encoded = delivery.headers.get("Authorization", "").partition(" ")
    if scheme == "Basic":
        found.add(encoded)
    return tuple(word for word in found if len(word) >= _LEAST_HIDDEN)


def _delivery_of(
    kind: str, settings: Mapping[str, Any], secrets: Mapping[str, str], message: Message, timestamp: int
) -> Delivery:
    match kind:
        case "mail":
            return _mail(settings, secrets, message)
        case "webhook":
            return _webhook(str(settings["url"]), secrets["secret"], message, timestamp)
        case "slack":
            return _post(secrets["webhook_url"], {"text": _cut(_escaped(text_of(message)), 30_000)})
        case "teams":
            return _post(secrets["webhook_url"], _adaptive_card(message))
        case "discord":
            content = _cut(text_of(message), 1900)
            return _post(secrets["webhook_url"], {"content": content, "allowed_mentions": {"parse": []}})
        case "telegram":
            base = str(settings.get("url", _TELEGRAM)).rstrip("/")
            text = _cut(text_of(message), 4000)
            body = {"chat_id": settings["chat_id"], "text": text, "disable_web_page_preview": True}
            return _post(f"{base}/bot{secrets['bot_token']}/sendMessage", body)
        case "pagerduty":
            return _pagerduty(settings, secrets["routing_key"], message)
        case "opsgenie":
            return _opsgenie(settings, secrets["api_key"], message)
        case "twilio":
            return _twilio(settings, secrets["auth_token"], message)
        case "apprise":
            return _apprise(secrets["apprise_url"], message)
    raise InvalidInput(f"there is no kind of channel {kind!r}", field="kind")


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """The signature of a webhook, as Standard Webhooks has it: HMAC-SHA256 of id, timestamp and body."""
    key = secret.encode()
    if secret.startswith(_STANDARD_SECRET):
        try:
            key = base64.b64decode(secret.removeprefix(_STANDARD_SECRET), validate=True)
        except ValueError:
            key = secret.encode()
    digest = hmac.new(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def webhook_body(message: Message) -> dict[str, Any]:
    """What a webhook gets: the message with its title and text."""
    items = [
        {
            **msgspec.to_builtins(item),
            "url": link_to(message.url, item.path),
            "runbook": runbook_of(item.event),
            **({"output": lines} if (lines := output_of(item, message)) else {}),
        }
        for item in message.items
    ]
    return {
        "id": message.id, "title": title_of(message), "text": text_of(message), "tenant": message.tenant,
        "rule": message.rule, "group": message.group, "created_at": rfc3339(message.created_at), "good": message.good,
        "escalated": message.escalated, "items": items, "more": message.more,
    }  # fmt: skip


def _post(url: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> HttpDelivery:
    return HttpDelivery(url, _encode(body), {"Content-Type": _JSON, **(headers or {})})


def _webhook(url: str, secret: str, message: Message, timestamp: int) -> HttpDelivery:
    body = _encode(webhook_body(message))
    headers = {
        "Content-Type": _JSON,
        "webhook-id": message.id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(secret, message.id, timestamp, body),
    }
    return HttpDelivery(url, body, headers)


def _adaptive_card(message: Message) -> dict[str, Any]:
    """For a workflow of Teams that posts a card. Markdown of names is escaped."""
    lines = text_of(message).splitlines()
    body: list[dict[str, Any]] = [
        {"type": "TextBlock", "text": _without_markdown(lines[0]), "weight": "Bolder", "wrap": True},
        {
            "type": "TextBlock",
            "text": _cut(_without_markdown("\n\n".join(filter(None, lines[1:]))), 20_000),
            "wrap": True,
        },
    ]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
    }
    content = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [content]}


def _pagerduty(settings: Mapping[str, Any], key: str, message: Message) -> HttpDelivery:
    base = str(settings.get("url", _PAGERDUTY[settings.get("region", "us")])).rstrip("/")
    body: dict[str, Any] = {
        "routing_key": key,
        "event_action": "resolve" if message.good else "trigger",
        "dedup_key": _cut(message.group, 255),
        "payload": {
            "summary": _cut(title_of(message), 1024),
            "source": f"mainspring/{message.tenant}",
            "severity": "info" if message.good else "error",
            "timestamp": rfc3339(message.created_at),
            "custom_details": webhook_body(message),
        },
    }
    if (link := link_to(message.url, message.items[0].path)) is not None:
        body["links"] = [{"href": link, "text": "Mainspring"}]
    return _post(f"{base}/v2/enqueue", body)


def _opsgenie(settings: Mapping[str, Any], key: str, message: Message) -> HttpDelivery:
    base = str(settings.get("url", _OPSGENIE[settings.get("region", "us")])).rstrip("/")
    headers = {"Authorization": f"GenieKey {key}"}
    alias = _cut(message.group, 512)
    if message.good:
        path = f"/v2/alerts/{quote(alias, safe='')}/close?identifierType=alias"
        return _post(f"{base}{path}", {"source": "mainspring", "note": _cut(title_of(message), 25_000)}, headers)
    body = {
        "message": _cut(title_of(message), 130), "alias": alias, "description": _cut(text_of(message), 15_000),
        "source": "mainspring", "details": {"id": message.id, "tenant": message.tenant},
    }  # fmt: skip
    return _post(f"{base}/v2/alerts", body, headers)


def _twilio(settings: Mapping[str, Any], token: str, message: Message) -> HttpDelivery:
    base, sid = str(settings.get("url", _TWILIO)).rstrip("/"), str(settings["account_sid"])
    form = urlencode({"From": settings["sender"], "To": settings["to"][0], "Body": _cut(_short(message), 1500)})
    basic = base64.b64encode(f"{sid}:{token}".encode()).decode()
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Authorization": f"Basic {basic}"}
    return HttpDelivery(f"{base}/2010-04-01/Accounts/{sid}/Messages.json", form.encode(), headers)


def _short(message: Message) -> str:
    """For SMS: the title, the first reason and the first link."""
    first = message.items[0]
    parts = (title_of(message), one_line(first.reason or "", 100), link_to(message.url, first.path))
    return "\n".join(part for part in parts if part)


def _mail(settings: Mapping[str, Any], secrets: Mapping[str, str], message: Message) -> MailDelivery:
    sender, recipients, tls = str(settings["sender"]), list(settings["to"]), str(settings.get("tls", "starttls"))
    mail = EmailMessage(policy=_MAIL)
    mail["From"] = sender
    mail["To"] = ", ".join(recipients)
    mail["Subject"] = one_line(f"[Mainspring] {title_of(message)}", 200)
    mail["Date"] = format_datetime(message.created_at)
    mail["Message-ID"] = f"<{message.id}@mainspring>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(text_of(message))
    return MailDelivery(
        host=str(settings["host"]), port=int(settings.get("port", _PORTS[tls])), tls=tls, user=settings.get("user"),
        password=secrets.get("password"), sender=sender, recipients=recipients,
        content=mail.as_bytes(),
    )  # fmt: skip


def _apprise(url: str, message: Message) -> AppriseDelivery:
    """Apprise has no key of a message, so the id is in the text."""
    body = f"{text_of(message)}, message {message.id}"
    return AppriseDelivery(url, _cut(title_of(message), 200), _cut(body, 20_000), message.good)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _escaped(text: str) -> str:
    """Slack reads `<!channel>` as a mention."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _without_markdown(text: str) -> str:
    return "".join(f"\\{one}" if one in "\\*_[]()~`#" else one for one in text)
