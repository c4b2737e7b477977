"""The call of an http task, as a request gives it and as it is stored, shown and sent to workers."""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring.wire.secrets import Variables


class SuccessRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """When the response to an HTTP call is a success. `status` contains numbers and classes such as "2xx". `json` is a
    JSONPath that must match a value. The value must equal `equals` if that is given."""

    status: list[int | str] = []
    json: str | None = None
    equals: Any = msgspec.UNSET


class HttpCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """The call of the task `http`. A string `body` is sent as text, any other as JSON. The default method is POST with
    a body and GET without. {"$secret": name} as a header, or anywhere in the body, is the value of a secret."""

    url: str
    method: str = ""
    headers: Variables = {}
    body: Any = None
    success: SuccessRule | None = None
    follow_redirects: bool = True


class SuccessRuleIn(SuccessRule, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """This struct as part of a request, in which unknown fields are forbidden."""


class HttpCallIn(HttpCall, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """This struct as part of a request, in which unknown fields are forbidden."""

    success: SuccessRuleIn | None = None


CALL_IN, CALL = HttpCallIn, HttpCall
NESTED = {"success": SuccessRule}


def in_words(call: HttpCall) -> str:
    return call.url
