"""Messages about signing in at a provider of OpenID Connect."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mainspring.wire.sessions import Secret


class ProviderView(msgspec.Struct):
    """provider: its key in the settings of the server. name: for people."""

    provider: str
    name: str


class ProviderList(msgspec.Struct):
    """The response to `GET /v1/session/providers`, in the order of the settings."""

    providers: list[ProviderView]


class ProviderChoice(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/session/providers`. again: the provider asks who it is, also if the person is signed in
    there. The new session may do for five minutes what others may only with the password."""

    provider: Secret
    again: bool = False


class ProviderAddress(msgspec.Struct):
    """Where the browser goes. The cookie that came with it must be there when it is back, within ten minutes."""

    url: str


class ProviderAnswer(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/session/providers/answer`: what the provider has added to the address of the page."""

    code: Annotated[str, Meta(min_length=1, max_length=4096)]
    state: Secret
    iss: Annotated[str, Meta(max_length=2048)] | None = None
