"""What is typed for an option, as the value of a field. The server checks the values."""

from __future__ import annotations

from typing import Any

from mainspring.kinds.option_values import pair, secret_or_text, value_of

_PAIRS = {
    "payload": "name=you",
    "labels": "team=billing",
    "env": "REGION=eu",
    "limits": "memory=512MB",
    "required_labels": "gpu=a100",
    "misfire": "once,grace=1h",
    "unique": "for=10m",
}


def misfire_of(text: str) -> dict[str, Any]:
    """The field from `once` or `once,grace=1h`. The server checks the values."""
    policy, *parts = (part.strip() for part in text.split(","))
    return ({"policy": policy} if policy else {}) | {
        key: value_of(value) for key, value in (pair_of(part, "misfire") for part in parts)
    }


def concurrency_of(text: str | None, key: str | None, *, strict: bool) -> Any:
    """The field from --concurrency, --concurrency-key and --strict."""
    from mainspring.domain.errors import InvalidInput

    value = None if text is None else False if text == "none" else value_of(text)
    if isinstance(value, str):
        raise InvalidInput(f"{value!r} is not a limit", field="concurrency", hint="such as --concurrency 3")
    if key is None and not strict:
        return value
    if value is False:
        raise InvalidInput("--concurrency none stands alone", field="concurrency", hint="leave out the other options")
    if isinstance(value, dict | list):
        raise InvalidInput(
            "--concurrency is JSON already", field="concurrency",
            hint="put the key and the order into it, or give a number",
        )  # fmt: skip
    if value is None and not strict:
        raise InvalidInput("--concurrency-key needs a limit", field="concurrency", hint="add --concurrency 1")
    fields = {"limit": 1 if value is None else value, "key": key, "order": "strict" if strict else None}
    return {name: part for name, part in fields.items() if part is not None}


def rate_of(text: str) -> Any:
    """The field from --rate: 100/m, none or JSON. The server checks the values."""
    return False if text == "none" else value_of(text)


def breaker_of(text: str) -> Any:
    """The field from --circuit-breaker: on, 5, 5:10m or JSON. The server checks the values."""
    if text in ("on", "off"):
        return text == "on"
    failures, _, open_for = text.partition(":")
    if failures.isdecimal():
        return {"failures": int(failures), **({"open_for": open_for} if open_for else {})}
    return value_of(text)


def unique_of(text: str) -> dict[str, Any] | bool:
    """The field from `task,payload.account,for=10m,while=queued+running,else=keep`, or from `none`. The server checks
    the values."""
    if text == "none":
        return False
    parts = [part.strip() for part in text.split(",")]
    rule: dict[str, Any] = {"by": [part for part in parts if "=" not in part]}
    for name, value in (pair_of(part, "unique") for part in parts if "=" in part):
        rule[name] = value.split("+") if name == "while" else value
    return rule


def object_of(text: str, field: str, example: str) -> dict[str, Any]:
    from mainspring.cli.json_text import object_in

    return object_in(text, f"--{field}", field, example)


def pairs_of(texts: list[str], field: str) -> dict[str, str] | None:
    return dict(pair_of(text, field) for text in texts) or None


def variables_of(texts: list[str], field: str) -> dict[str, Any] | None:
    return {name: secret_or_text(value, field) for name, value in (pair_of(text, field) for text in texts)} or None


def limits_of(texts: list[str]) -> dict[str, Any] | None:
    return {key: value_of(value) for key, value in (pair_of(text, "limits") for text in texts)} or None


def pair_of(text: str, field: str) -> tuple[str, str]:
    return pair(text, field, _PAIRS.get(field, "name=value"))


def notify_of(texts: list[str]) -> list[dict[str, Any]]:
    """`failure,recovered=oncall,boss`: these channels are told of these events."""
    from mainspring.domain.errors import InvalidInput

    found = []
    for text in texts:
        events, mark, channels = text.partition("=")
        if not mark or not events.strip() or not channels.strip():
            raise InvalidInput(f"{text!r} names no event or no channel", field="notify", expected="failure=oncall")
        found.append({"on": _parts(events), "to": _parts(channels)})
    return found


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
