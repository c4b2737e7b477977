"""People: mail addresses, passwords, and which roles a personal token may have."""

from __future__ import annotations

import re
import unicodedata

from mainspring.domain.errors import InvalidInput
from mainspring.domain.texts import check_line, shown

ROLES = ("admin", "operator", "submitter", "viewer")
LEAST_PASSWORD = 12
_LEAST_DIFFERENT = 5
_MAIL = re.compile(r"[^@\s<>\"(),:;\[\]\\]+@[^@\s<>\"(),:;\[\]\\]+\Z")
# What a token of a user with this role may be.
_WITHIN = {
    "admin": ("admin", "operator", "submitter", "viewer", "metrics", "worker"),
    "operator": ("operator", "viewer", "metrics"),
    "submitter": ("submitter", "viewer", "metrics"),
    "viewer": ("viewer", "metrics"),
}


def mail_address(text: str) -> str:
    """The address as it is stored, in small letters. Raises InvalidInput if it is none."""
    check_line(text, "mail")
    mail = unicodedata.normalize("NFC", text.strip()).lower()
    if not _MAIL.match(mail):
        raise InvalidInput(f"{shown(text)} is not a mail address", field="mail", expected="such as ada@example.com")
    return mail


def person_role(role: str) -> str:
    if role in ROLES:
        return role
    raise InvalidInput(
        f"{shown(role)} is not a role of people", field="role", expected=", ".join(ROLES),
        hint="tokens of workers and for metrics are made with POST /v1/tokens",
    )  # fmt: skip


def roles_within(role: str) -> tuple[str, ...]:
    """The roles that reach no further than this one."""
    return _WITHIN.get(role, ())


def full_name(name: str, mail: str) -> str:
    """How lists, `created_by` and the audit name a person: names alone may be equal."""
    return f"{name} ({mail})"


def check_new_password(password: str, mail: str, name: str, field: str) -> None:
    """Raise InvalidInput if a password is easy to guess. The message does not have it."""
    hint = "several words that do not belong together are easy to remember and hard to guess"
    if len(password) < LEAST_PASSWORD:
        raise InvalidInput(
            "the password is too short", code="weak_password", field=field,
            expected=f"at least {LEAST_PASSWORD} characters", hint=hint,
        )  # fmt: skip
    small = password.lower()
    known = {mail, mail.partition("@")[0], name.lower(), "mainspring", "password"}
    rest = small
    for word in sorted(known, key=len, reverse=True):
        rest = rest.replace(word, "") if len(word) > 2 else rest
    if len(set(small)) < _LEAST_DIFFERENT or len(rest) < LEAST_PASSWORD // 2:
        raise InvalidInput("the password is easy to guess", code="weak_password", field=field, hint=hint)
