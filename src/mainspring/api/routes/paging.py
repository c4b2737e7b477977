"""Parameters of lists. Pages are keyset pages: the Link header has the URL of the next page."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from urllib.parse import urlencode

from mainspring.api.web import QueryParameter, Request
from mainspring.domain.intake.filters import label_filter, payload_filter, several, worker_filter
from mainspring.domain.intake.request import parse_time
from mainspring.kernel.public_url import link_to

__all__ = [
    "DEFAULT_PAGE",
    "MAX_GENERATION",
    "MAX_PAGE",
    "PageLimit",
    "label_filter",
    "link_header",
    "payload_filter",
    "several",
    "time_filter",
    "worker_filter",
]

DEFAULT_PAGE = 50
ListView = Literal["full", "row"]
MAX_PAGE = 1000
PageLimit = Annotated[int, QueryParameter(ge=1, le=MAX_PAGE)]
MAX_GENERATION = 2**31 - 1


def link_header(request: Request, cursor: str | None) -> dict[str, str]:
    if cursor is None:
        return {}
    parameters = [(name, value) for name, value in request.query_pairs() if name != "cursor"]
    address = link_to(f"{request.path}?{urlencode([*parameters, ('cursor', cursor)])}")
    return {"Link": f'<{address}>; rel="next"'}


def time_filter(text: str | None, name: str) -> datetime | None:
    return None if text is None else parse_time(text, name)
