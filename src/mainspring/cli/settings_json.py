"""Settings of channels, rules and sinks from files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mainspring.cli.json_text import object_in

# The secret field of each kind of channel that --secret-file fills.
_SECRETS = {
    "mail": "password", "webhook": "secret", "slack": "webhook_url", "teams": "webhook_url", "discord": "webhook_url",
    "telegram": "bot_token", "pagerduty": "routing_key", "opsgenie": "api_key", "twilio": "auth_token",
    "apprise": "apprise_url",
}  # fmt: skip


def read_settings(file: str | None, given: dict[str, Any], needs: tuple[str, ...]) -> dict[str, Any]:
    """The settings in a JSON file, or those of the options, of which there are at least `needs`."""
    from mainspring.domain.errors import InvalidInput

    if file is None:
        for name in needs:
            if name not in given:
                raise InvalidInput(
                    f"{name} is missing", field=name, hint=f"give --{name}, or all settings with --file"
                )  # fmt: skip
        return given
    if given:
        raise InvalidInput(
            f"--file and {next(iter(given))} cannot be combined", field="file", hint="the file has all settings"
        )
    return settings_in(file)


def settings_in(file: str) -> dict[str, Any]:
    """The object in a JSON file; - is the standard input."""
    from mainspring.domain.errors import InvalidInput

    try:
        text = _text_of(file)
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}", field="file") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{file} is not text", field="file", expected="a JSON object in UTF-8") from None
    return object_in(text, file, "file")


def secret_from(file: str, kind: str) -> tuple[str, str]:
    """The secret field of a kind, and its value from a file. A secret is no option: others see those."""
    from mainspring.domain.errors import InvalidInput

    if kind not in _SECRETS:
        raise InvalidInput(f"there is no kind of channel {kind!r}", field="kind", expected=", ".join(_SECRETS))
    return _SECRETS[kind], read_secret(file)


def read_secret(file: str) -> str:
    """A secret from a file."""
    from mainspring.domain.errors import InvalidInput

    try:
        return _text_of(file).strip()
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}", field="secret-file") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{file} is not text", field="secret-file", expected="one line in UTF-8") from None


def _text_of(file: str) -> str:
    return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
