"""Answers of the API as gzip, for those who accept it: figures and lists are mostly the names of fields.

Only reads are compressed, so submissions and exchanges cost nothing more. An answer with a secret beside text of others
is not: its length would tell about the secret. Streams have no end, and a very large answer would stop the event loop.
"""

from __future__ import annotations

import gzip
from typing import Any

from mainspring.api.web import MediaType, Response, Scope
from mainspring.wire.problems import PROBLEM_MEDIA_TYPE

_LEAST = 1000  # bytes
_MOST = 256 * 1024  # 3 ms
_LEVEL = 1
_SECRET = ("/v1/session", "/v1/tokens")  # the page of sessions has the value against forged requests
_TEXTS = (MediaType.JSON, PROBLEM_MEDIA_TYPE)


def compress(scope: Scope, answer: Response[Any]) -> None:
    if (
        scope["method"] == "GET"
        and _LEAST <= len(answer.body) <= _MOST
        and answer.media_type in _TEXTS
        and not scope["path"].startswith(_SECRET)
        and takes_gzip(scope)
    ):
        answer.body = gzip.compress(answer.body, _LEVEL, mtime=0)
        answer.headers |= {"Content-Encoding": "gzip", "Vary": "accept-encoding"}


def takes_gzip(scope: Any) -> bool:
    wanted = b",".join(value for name, value in scope["headers"] if name == b"accept-encoding").decode("latin-1")
    return any(part.partition(";")[0].strip() == "gzip" and "q=0" not in part for part in wanted.lower().split(","))
