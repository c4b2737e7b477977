"""The last lines of output in messages, for channels that want them. They are read when a message is sent, and stored
nowhere."""

from __future__ import annotations

import asyncio

import msgspec

from mainspring.domain.errors import MainspringError
from mainspring.domain.notify.messages import Message
from mainspring.kernel.ids import TenantId, parse_uuid
from mainspring.kernel.logs import get_logger
from mainspring.operations.logs.log_service import LogService

log = get_logger("notify_log_lines")

_MOST_RUNS = 3  # of a message
_SECONDS = 5.0  # the message is sent without them afterwards


async def with_log_lines(logs: LogService, tenant: TenantId, message: Message, lines: int) -> Message:
    """The message with the last lines of the output of its first runs."""
    wanted = [run_id for item in message.items if item.run_id and (run_id := parse_uuid(item.run_id))][:_MOST_RUNS]
    found: dict[str, list[str]] = {}
    try:
        async with asyncio.timeout(_SECONDS):
            for run_id in wanted:
                if text := await logs.tail(tenant, run_id, lines):
                    found[str(run_id)] = text.splitlines()[-lines:]
    except (MainspringError, TimeoutError, OSError) as error:
        log.warning("a notification has no output", tenant=tenant, notification=message.id, error=repr(error))
    return msgspec.structs.replace(message, output=found) if found else message
