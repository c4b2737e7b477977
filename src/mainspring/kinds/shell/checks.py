"""The checks of a shell task: its command, and the size of its payload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from mainspring.domain.errors import InvalidInput, PayloadTooLarge
from mainspring.domain.texts import check_prose
from mainspring.domain.workflows.references import ParsedReference
from mainspring.kernel.config import MAX_SHELL_PAYLOAD_BYTES
from mainspring.kinds.shell import KIND
from mainspring.wire.execution import RunSetup

_LONGEST_COMMAND = 128 * 1024 - 1  # the longest single argument on Linux


class ShellChecks:
    kind = KIND
    payload_is_call = False
    takes_callback = False
    other_task = "command goes with the task shell alone"

    def read(self, given: str | list[str], payload: str | None) -> str | list[str]:
        _check_shell_payload(payload)
        return _clean_command(given, "command")

    def read_payload(self, payload: str | None) -> str | list[str]:
        _check_shell_payload(payload)
        command = command_in(payload)
        if command is None:
            raise InvalidInput("a shell task needs a command", field="command", expected='"command": "echo hello"')
        return command

    def check_setup(self, setup: RunSetup) -> None:
        """Each field has an effect on a command, but for the secrets of ctx.secret."""
        if setup.secrets:
            raise InvalidInput(
                "secrets has an effect only on Python tasks", field="secrets",
                hint='give a command its secrets as variables: "env": {"DB_PASSWORD": {"$secret": "db-password"}}',
            )  # fmt: skip

    def is_in_payload(self, call: str | list[str] | None, payload: str | None) -> bool:
        try:
            return call is not None and call == command_in(payload)
        except InvalidInput:
            return False

    def stand_in(self, call: str | list[str], payload: str) -> str | None:
        return None if command_in(payload) is None else msgspec.json.encode({"command": call}).decode()

    def in_step(self, given: Any) -> tuple[str | None, list[ParsedReference], Any]:
        return None, [], given

    def secrets_in(self, call: Any) -> Iterable[tuple[str, str]]:
        """None: a command gets them in its variables, because every user of the machine sees arguments."""
        return ()

    def check_references(self, call: Any, parents: Sequence[str]) -> None:
        """A command has none: it gets results in its payload."""


def _check_shell_payload(payload: str | None) -> None:
    """Check the size of a command's payload, which is passed in the environment variable MAINSPRING_PAYLOAD."""
    if payload is not None and (size := len(payload.encode())) > MAX_SHELL_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"the payload has {size} bytes", field="payload",
            expected=f"at most {MAX_SHELL_PAYLOAD_BYTES} bytes for a command", hint="name a file in it instead",
        )  # fmt: skip


def _clean_command(command: Any, field: str) -> str | list[str]:
    parts = [command] if isinstance(command, str) else command
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise InvalidInput(f"{field} is not a command", field=field, expected="a string or a list of strings")
    if not parts or not parts[0].strip():
        raise InvalidInput("the command is empty", field=field, expected='such as "echo hello" or ["echo", "hello"]')
    for part in parts:
        check_prose(part, field)
    if sum(len(part.encode()) for part in parts) > _LONGEST_COMMAND:
        raise InvalidInput(
            "the command is too long",
            field=field,
            expected=f"at most {_LONGEST_COMMAND} bytes",
            hint="put it in a script",
        )
    return parts[0] if isinstance(command, str) else parts


class _ShellPayload(msgspec.Struct):
    command: Any = None
    argv: Any = None


_read_shell_payload = msgspec.json.Decoder(_ShellPayload).decode


def command_in(payload: str | None) -> str | list[str] | None:
    """The command in the payload of a shell task. None if it has none."""
    try:
        body = _ShellPayload() if payload is None else _read_shell_payload(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"the payload cannot be decoded: {error}", field="payload") from None
    if body.command is not None:
        return _clean_command(body.command, "payload.command")
    if isinstance(body.argv, str):
        raise InvalidInput("payload.argv is not a list", field="payload.argv", expected='such as ["echo", "hello"]')
    return None if body.argv is None else _clean_command(body.argv, "payload.argv")


CHECKS = ShellChecks()
