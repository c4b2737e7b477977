"""The addresses of apprise: `scheme://...`, of which every part may be a secret."""

from __future__ import annotations

import re

from mainspring.domain.errors import InvalidInput
from mainspring.domain.texts import shown

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,30}\Z", re.ASCII)
# They act on the machine of the server and call no service. No setting allows them.
NEVER = frozenset(
    {"file", "syslog", "dbus", "qt", "glib", "gio", "kde", "gnome", "macosx", "windows", "blink1", "deltachat"}
)


def scheme_of(url: str) -> str | None:
    """The scheme in lower case. None if there is none."""
    scheme, separator, _ = url.partition("://")
    scheme = scheme.lower()
    return scheme if separator and _SCHEME.match(scheme) else None


def check_apprise_url(url: str) -> None:
    """Raise InvalidInput unless it may be an address of apprise. The message has at most its scheme."""
    scheme = scheme_of(url)
    if scheme is None:
        raise InvalidInput("apprise_url is not an address of apprise", field="apprise_url", expected="ntfy://topic")
    if scheme in NEVER:
        raise InvalidInput(
            f"{scheme}:// acts on the machine of the server", field="apprise_url", hint="it can never be used"
        )


def read_schemes(text: str | None, field: str) -> frozenset[str]:
    """The schemes of a list such as `ntfy,matrix`. Raises InvalidInput that names the bad one."""
    found = [one for one in (piece.strip().lower().removesuffix("://") for piece in (text or "").split(",")) if one]
    for scheme in found:
        if not _SCHEME.match(scheme):
            raise InvalidInput(f"{shown(scheme)} is not a scheme", field=field, expected="schemes, such as ntfy,matrix")
        if scheme in NEVER:
            raise InvalidInput(
                f"{scheme}:// acts on the machine of the server, and can never be allowed", field=field,
                hint="leave it out",
            )  # fmt: skip
    return frozenset(found)
