"""Parameters of handlers: their declaration, and how what a client gives becomes their arguments.

    limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 50

An argument whose name is in the path is a path parameter, and others are query parameters. `name` is for names that
are not those of the argument. A parameter without a default must be given. Unknown parameters, and values that are
given twice, are refused. The error for an unknown one names the most similar known one.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import NoneType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.filters import PAYLOAD_PARAMETER
from mainspring.wire.problems import FieldProblem

REQUIRED = inspect.Parameter.empty
_OTHERS = ("request", "data", "return")
_LENIENT = "/schema"
_LONGEST_NAME = 100  # in a response
_BOUNDS = ("ge", "le", "min_length", "max_length", "pattern")
_PLAIN = (
    (re.compile(r"Expected `int` >= (-?\d+)"), r"expected at least \1"),
    (re.compile(r"Expected `int` <= (-?\d+)"), r"expected at most \1"),
    (re.compile(r"Expected `int`, got `str`"), "expected a whole number"),
    (re.compile(r"Expected `float`, got `str`"), "expected a number"),
    (re.compile(r"Expected `bool`, got `str`"), "expected true or false"),
    (re.compile(r"Expected `str` of length >= 1$"), "is empty; give it, or leave it out"),
    (re.compile(r"Expected `str` of length >= (\d+)"), r"expected at least \1 characters"),
    (re.compile(r"Expected `str` of length <= (\d+)"), r"expected at most \1 characters"),
)


@dataclass(frozen=True, slots=True)
class QueryParameter:
    """Bounds of a number or of the length of a text. `form`: what a text must be that does not match the pattern."""

    name: str | None = None
    ge: float | None = None
    le: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    form: str | None = None


@dataclass(frozen=True, slots=True)
class HeaderParameter:
    name: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """argument: of the handler. name: as clients write it. place: path, query or header. kind: its type, without null.
    several: whether it is a list. text: whether it is a text, or a list of texts."""

    argument: str
    name: str
    place: str
    kind: Any
    default: Any
    bounds: QueryParameter | None
    several: bool
    text: bool
    convert: Callable[[Any], Any] | None

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


class InvalidParameters(InvalidInput):
    """What is wrong with each of them. The first one is the field of the refusal."""

    def __init__(self, errors: list[FieldProblem]) -> None:
        first = errors[0]
        super().__init__(f"{first.field}: {first.detail}", code="invalid_parameter", field=first.field)
        self.errors = errors


def parameters_of(function: Callable[..., Any], in_path: frozenset[str]) -> tuple[Parameter, ...]:
    """The parameters that a handler declares, in the order of its arguments."""
    defaults = inspect.signature(function).parameters
    hints = get_type_hints(function, include_extras=True)
    return tuple(
        _parameter(argument, hint, defaults[argument].default, in_path)
        for argument, hint in hints.items()
        if argument not in _OTHERS
    )


def _parameter(argument: str, hint: Any, default: Any, in_path: frozenset[str]) -> Parameter:
    kind, mark = _unmarked(hint)
    optional = NoneType in get_args(kind)
    if optional:
        kind, inner = _unmarked(Union[tuple(part for part in get_args(kind) if part is not NoneType)])  # noqa: UP007
        mark = mark or inner
    bounds = mark if isinstance(mark, QueryParameter) else None
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    several = get_origin(bare) is list
    return Parameter(
        argument,
        argument if mark is None or mark.name is None else mark.name,
        "path" if argument in in_path else "header" if isinstance(mark, HeaderParameter) else "query",
        kind,
        default,
        bounds,
        several,
        several or bare is str,
        _converter(bare, bounds, optional=optional),
    )


def _unmarked(hint: Any) -> tuple[Any, QueryParameter | HeaderParameter | None]:
    """A type without our mark in Annotated, and the mark."""
    if get_origin(hint) is not Annotated:
        return hint, None
    kind, *marks = get_args(hint)
    own = next((mark for mark in marks if isinstance(mark, QueryParameter | HeaderParameter)), None)
    rest = [mark for mark in marks if mark is not own]
    return (Annotated[(kind, *rest)] if rest else kind), own


def _converter(kind: Any, bounds: QueryParameter | None, *, optional: bool) -> Callable[[Any], Any] | None:
    given = {name: getattr(bounds, name, None) for name in _BOUNDS}
    given = {name: bound for name, bound in given.items() if bound is not None}
    if kind is str and not given:
        return None
    whole: Any = Annotated[kind, msgspec.Meta(**given)] if given else kind
    return partial(msgspec.convert, type=whole | None if optional else whole, strict=False)


def read_query(scope: Any, parameters: Sequence[Parameter], *, payload_keys: bool) -> dict[str, Any]:
    """The values of query parameters, by name. Raises InvalidInput for one that is unknown or is given twice."""
    if not scope["query_string"]:
        return {}
    known = {one.name: one for one in parameters if one.place == "query"}
    found: dict[str, Any] = {}
    for name, value in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        parameter = known.get(name)
        if parameter is None and not (payload_keys and name.startswith(PAYLOAD_PARAMETER)):
            if scope["path"].startswith(_LENIENT):
                continue
            raise _unknown(name[:_LONGEST_NAME], list(known))
        if parameter is not None and value.lower() == "null" and not parameter.text:  # it would be taken as not given
            raise InvalidInput(f"{name} is null", code="invalid_parameter", field=name, hint="leave it out")
        if parameter is not None and parameter.several:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise InvalidInput(f"{name} is given twice", code="invalid_parameter", field=name, hint="give it once")
        else:
            found[name] = value
    return found


def arguments_of(parameters: Sequence[Parameter], scope: Any) -> dict[str, Any]:
    """The arguments of a handler. Raises InvalidInput for one that is missing or has another type."""
    query: Mapping[str, Any] = scope.get("query", {})  # handlers without a token take none
    found: dict[str, Any] = {}
    wrong: list[FieldProblem] = []
    for one in parameters:
        if one.place == "path":
            found[one.argument] = scope["path_params"][one.name]
        elif one.place == "header":
            if (text := _header(scope, one.name)) is not None:
                found[one.argument] = text
        elif one.name in query:
            try:
                value = query[one.name]
                found[one.argument] = value if one.convert is None else one.convert(value)
            except msgspec.ValidationError as error:
                wrong.append(FieldProblem(one.name, "invalid_parameter", _plain(str(error), one.bounds)))
        elif one.required:
            raise InvalidInput(
                f"{one.name} is missing", code="invalid_parameter", field=one.name, hint=f"give {one.name}"
            )
    if wrong:
        raise InvalidParameters(wrong)
    return found


def _header(scope: Any, name: str) -> str | None:
    wanted = name.lower().encode()
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == wanted), None)


def _plain(words: str, bounds: QueryParameter | None) -> str:
    """What the decoder says about a parameter, without its types."""
    if bounds is not None and bounds.form is not None and "matching regex" in words:
        return f"expected {bounds.form}"
    words = words.partition(" - at ")[0]
    for pattern, plain in _PLAIN:
        words = pattern.sub(plain, words)
    return words.replace("`", "")


def _unknown(name: str, known: list[str]) -> InvalidInput:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        hint = f"did you mean {near[0]!r}?"
    else:
        hint = "known are: " + ", ".join(known) if known else "this route takes no parameters"
    return InvalidInput(f"unknown parameter {name!r}", code="unknown_parameter", field=name, hint=hint)
