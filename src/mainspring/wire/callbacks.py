"""Messages about callbacks."""

from __future__ import annotations

import msgspec


class CallbackTaken(msgspec.Struct):
    """The step ends with what was sent. accepted: always true."""

    accepted: bool = True
