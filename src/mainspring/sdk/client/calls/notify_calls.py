"""Calls for channels, rules and notifications."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mainspring.sdk.client.calls.common import match_header, query_of, verb
from mainspring.sdk.client.core import Call, encode, json_of, segment
from mainspring.wire.channels import ChannelList, ChannelTested, ChannelView
from mainspring.wire.notifications import NotificationList, NotificationView
from mainspring.wire.rules import RuleList, RuleView

_channel = json_of(ChannelView)
_channel_list = json_of(ChannelList)
_tested = json_of(ChannelTested)
_rule = json_of(RuleView)
_rule_list = json_of(RuleList)
_notification = json_of(NotificationView)
_notification_list = json_of(NotificationList)


def channels(*, limit: int | None = None, cursor: str | None = None) -> Call[ChannelList]:
    """One page of channels, by name."""
    return Call("GET", "/v1/channels", _channel_list, params=query_of({"limit": limit, "cursor": cursor}))


def channel(name: str) -> Call[ChannelView]:
    """The channel `name`, without its secrets."""
    return Call("GET", f"/v1/channels/{segment(name)}", _channel)


def set_channel(
    name: str, settings: Mapping[str, Any] | None = None, *, if_version: int | None = None, **members: Any
) -> Call[ChannelView]:
    """Create or change a channel. The settings are those of `PUT /v1/channels/{name}`, as a mapping or as keywords. A
    secret that is left out keeps its value. With `if_version` only that version is changed."""
    body, headers = encode({**(settings or {}), **members}), match_header(if_version)
    return Call("PUT", f"/v1/channels/{segment(name)}", _channel, body=body, headers=headers)


def delete_channel(name: str, *, if_version: int | None = None) -> Call[ChannelView]:
    """Delete a channel that no rule uses. Returns it as it was. Not repeated after a lost response."""
    headers = match_header(if_version)
    return Call("DELETE", f"/v1/channels/{segment(name)}", _channel, headers=headers, repeatable=False)


def test_channel(name: str) -> Call[ChannelTested]:
    """Send a test message to the channel, and return what became of it. Not repeated after a lost response."""
    return Call("POST", f"/v1/channels/{segment(name)}:test", _tested, repeatable=False)


def rules(*, limit: int | None = None, cursor: str | None = None) -> Call[RuleList]:
    """One page of rules, by name."""
    return Call("GET", "/v1/rules", _rule_list, params=query_of({"limit": limit, "cursor": cursor}))


def rule(name: str) -> Call[RuleView]:
    """The rule `name`."""
    return Call("GET", f"/v1/rules/{segment(name)}", _rule)


def set_rule(
    name: str, settings: Mapping[str, Any] | None = None, *, if_version: int | None = None, **members: Any
) -> Call[RuleView]:
    """Create or change a rule. The settings are those of `PUT /v1/rules/{name}`, as a mapping or as keywords: on, to,
    job, task, queue, labels and so on. With `if_version` only that version is changed."""
    body, headers = encode({**(settings or {}), **members}), match_header(if_version)
    return Call("PUT", f"/v1/rules/{segment(name)}", _rule, body=body, headers=headers)


def delete_rule(name: str, *, if_version: int | None = None) -> Call[RuleView]:
    """Delete a rule. Returns it as it was. Not repeated after a lost response."""
    headers = match_header(if_version)
    return Call("DELETE", f"/v1/rules/{segment(name)}", _rule, headers=headers, repeatable=False)


def mute_rule(name: str, duration: str | float) -> Call[RuleView]:
    """Tell nothing of the rule for so long: "2h", or a number of seconds."""
    return verb(f"/v1/rules/{segment(name)}:mute", _rule, body=encode({"for": duration}))


def unmute_rule(name: str) -> Call[RuleView]:
    """End the mute of a rule."""
    return verb(f"/v1/rules/{segment(name)}:unmute", _rule)


def notifications(
    *,
    status: str | None = None,
    channel: str | None = None,
    rule: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Call[NotificationList]:
    """One page of notifications, newest first. `status`: PENDING, SENT or DEAD."""
    filters = {"status": status, "channel": channel, "rule": rule, "limit": limit, "cursor": cursor}
    return Call("GET", "/v1/notifications", _notification_list, params=query_of(filters))


def notification(notification_id: str) -> Call[NotificationView]:
    """A notification, with the error of its last attempt."""
    return Call("GET", f"/v1/notifications/{segment(notification_id)}", _notification)


def send_notification(notification_id: str) -> Call[NotificationView]:
    """Send a notification again that was sent or given up. It keeps its id. Not repeated after a lost response."""
    return Call("POST", f"/v1/notifications/{segment(notification_id)}:send", _notification, repeatable=False)


def acknowledge_notification(notification_id: str) -> Call[NotificationView]:
    """Take care of what a notification tells: no reminders and no escalation of it any more."""
    return verb(f"/v1/notifications/{segment(notification_id)}:acknowledge", _notification)
