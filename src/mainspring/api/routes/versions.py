"""Versions in If-Match and ETag."""

from __future__ import annotations

from typing import Annotated

from litestar.params import HeaderParameter

from mainspring.domain.errors import InvalidInput

IfMatch = Annotated[str | None, HeaderParameter(name="If-Match")]


def version_of(if_match: str | None) -> int | None:
    """The version that If-Match names. None means any."""
    if if_match is None or if_match.strip() == "*":
        return None
    text = if_match.strip().removeprefix("W/").strip('"')
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidInput("If-Match is not a version", field="If-Match", expected='a number such as "3"')
    return int(text)


def etag(version: int) -> dict[str, str]:
    return {"ETag": f'"{version}"'}
