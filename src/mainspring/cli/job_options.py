"""The options of a job, as the fields of a request."""

from __future__ import annotations

from typing import Any

from mainspring.cli.field_options import kind_options
from mainspring.kinds.option_values import pair, value_of

_PAIRS = {
    "payload": "name=you",
    "labels": "team=billing",
    "env": "REGION=eu",
    "limits": "memory=512MB",
    "required_labels": "gpu=a100",
    "misfire": "once,grace=1h",
    "unique": "for=10m",
}


def job_fields(
    *,
    payload: str | None,
    params: list[str] | None,
    manual: bool,
    exdate: list[str] | None,
    retry: str | None,
    misfire: str | None,
    keep_payload: str | None,
    label: list[str] | None,
    env: list[str] | None,
    limit: list[str] | None,
    require: list[str] | None,
    concurrency: str | None,
    concurrency_key: str | None,
    strict: bool,
    rate: str | None,
    circuit_breaker: str | None,
    dst_gap: str | None,
    dst_overlap: str | None,
    unique: str | None = None,
    after: list[str] | None = None,
    depends_on: list[str] | None = None,
    **plain: Any,
) -> dict[str, Any]:
    """The fields of a job that the options describe. None for those that are not given."""
    calls = {kind.field: options.call(plain) for kind, options in kind_options() if options.call is not None}
    for _, options in kind_options():
        for option in options.of_a_job:
            plain.pop(option.name, None)
    return {
        **calls,
        "payload": payload_of(payload, params or []),
        "schedule": "manual" if manual else None,
        "exdates": exdate or None,
        "after": after or None,
        "depends_on": depends_on or None,
        "dst": {name: word for name, word in (("gap", dst_gap), ("overlap", dst_overlap)) if word is not None} or None,
        "retry": None if retry is None else _object(retry, "retry", '{"max_attempts": 3}'),
        "misfire": None if misfire is None else misfire_of(misfire),
        "keep_payload": None if keep_payload is None else value_of(keep_payload),
        "unique": None if unique is None else unique_of(unique),
        "labels": pairs_of(label or [], "labels"),
        "env": pairs_of(env or [], "env"),
        "limits": limits_of(limit or []),
        "required_labels": pairs_of(require or [], "required_labels"),
        "concurrency": concurrency_of(concurrency, concurrency_key, strict=strict),
        "rate_limit": None if rate is None else rate_of(rate),
        "circuit_breaker": None if circuit_breaker is None else breaker_of(circuit_breaker),
        **plain,
    }


def misfire_of(text: str) -> dict[str, Any]:
    """The field from `once` or `once,grace=1h`. The server checks the values."""
    policy, *parts = (part.strip() for part in text.split(","))
    return ({"policy": policy} if policy else {}) | {
        key: value_of(value) for key, value in (pair(part, "misfire", _PAIRS["misfire"]) for part in parts)
    }


def concurrency_of(text: str | None, key: str | None, *, strict: bool) -> Any:
    """The field from --concurrency, --concurrency-key and --strict. The server checks the values."""
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
    for name, value in (pair(part, "unique", _PAIRS["unique"]) for part in parts if "=" in part):
        rule[name] = value.split("+") if name == "while" else value
    return rule


def payload_of(text: str | None, params: list[str]) -> dict[str, Any] | None:
    """The payload from --payload or from key=value pairs."""
    from mainspring.domain.errors import InvalidInput

    if text is None:
        pairs = [pair(param, "payload", _PAIRS["payload"]) for param in params]
        return {key: value_of(value) for key, value in pairs} or None
    if params:
        raise InvalidInput("--payload and key=value cannot be combined", field="payload", hint="use one of them")
    return _object(text, "payload", '{"region": "eu"}')


def _object(text: str, field: str, example: str) -> dict[str, Any]:
    import msgspec

    from mainspring.domain.errors import InvalidInput

    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise InvalidInput(
            f"--{field} is not a JSON object: {error}", field=field, hint=f"such as '{example}'"
        ) from None


def pairs_of(texts: list[str], field: str) -> dict[str, str] | None:
    return dict(pair(text, field, _PAIRS[field]) for text in texts) or None


def limits_of(texts: list[str]) -> dict[str, Any] | None:
    return {key: value_of(value) for key, value in (pair(text, "limits", _PAIRS["limits"]) for text in texts)} or None
