"""Versions and tags in If-Match and ETag."""

from __future__ import annotations

import re
from typing import Annotated

from mainspring.api.web import HeaderParameter
from mainspring.domain.errors import InvalidInput
from mainspring.domain.tags import TAG

IfMatch = Annotated[str | None, HeaderParameter(name="If-Match")]
# Of what has a tag, the parameter is called `if_tag`: the document describes it by this name.
IfTag = Annotated[str | None, HeaderParameter(name="If-Match")]
_TAG = re.compile(TAG)


def version_of(if_match: str | None) -> int | None:
    """The version that If-Match names. None means any."""
    if if_match is None or if_match.strip() == "*":
        return None
    text = if_match.strip().removeprefix("W/").strip('"')
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidInput("If-Match is not a version", field="If-Match", expected='a number such as "3"')
    return int(text)


def tag_of(if_match: str | None) -> str | None:
    """The tag that If-Match names. None means any."""
    if if_match is None or if_match.strip() == "*":
        return None
    text = if_match.strip().removeprefix("W/").strip('"')
    if _TAG.fullmatch(text) is None:
        raise InvalidInput(
            "If-Match is not a tag", field="If-Match", expected='the ETag as it was read, such as "running-1"'
        )
    return text


def etag(version: int | str) -> dict[str, str]:
    return {"ETag": f'"{version}"'}
