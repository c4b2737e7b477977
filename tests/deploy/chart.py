"""Renders the Helm chart of deploy/helm. It knows the part of the template language that the chart uses: paths and
variables, if, range, define, include, and a few functions. Where helm is installed, the tests use helm as well."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "mainspring"
_ACTION = re.compile(r"(\s*)\{\{(-?)\s*(.*?)\s*(-?)\}\}(\s*)", re.DOTALL)
Node = str | tuple[str, list["Node"], list["Node"]]


def rendered(values: Mapping[str, Any], release: str = "jobs") -> dict[str, list[dict[str, Any]]]:
    """The objects of each template."""
    base = yaml.safe_load((CHART / "values.yaml").read_text())
    meta = yaml.safe_load((CHART / "Chart.yaml").read_text())
    root = {
        "Values": _merged(base, values), "Release": {"Name": release, "Namespace": "default"},
        "Chart": {"AppVersion": meta["appVersion"], "Name": meta["name"]},
    }  # fmt: skip
    templates = Templates()
    for path in sorted((CHART / "templates").glob("*.tpl")):
        templates.render(path.read_text(), root)
    return {
        path.name: [one for one in yaml.safe_load_all(templates.render(path.read_text(), root)) if one]
        for path in sorted((CHART / "templates").glob("*.yaml"))
    }


def _merged(base: Any, given: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(given, Mapping):
        return given
    return {**base, **{name: _merged(base.get(name), value) for name, value in given.items()}}


class Templates:
    def __init__(self) -> None:
        self._defined: dict[str, list[Node]] = {}

    def render(self, text: str, root: dict[str, Any]) -> str:
        nodes, rest = _parsed(_tokens(text))
        assert rest is None, f"{rest} closes nothing"
        return self._text(nodes, root, {"$": root})

    def _text(self, nodes: list[Node], dot: Any, names: dict[str, Any]) -> str:
        return "".join(one if isinstance(one, str) else self._of(one, dot, names) for one in nodes)

    def _of(self, node: tuple[str, list[Node], list[Node]], dot: Any, names: dict[str, Any]) -> str:
        action, inner, otherwise = node
        verb, _, rest = action.partition(" ")
        if verb == "define":
            self._defined[shlex.split(rest)[0]] = inner
            return ""
        if verb == "if":
            return self._text(inner if self._value(rest, dot, names) else otherwise, dot, names)
        if verb == "range":
            variables, _, path = rest.partition(":=")
            key, value = (one.strip() for one in variables.split(","))
            found = self._value(path, dot, names)
            return "".join(self._text(inner, dot, {**names, key: name, value: found[name]}) for name in sorted(found))
        value = self._value(action, dot, names)
        return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)

    def _value(self, expression: str, dot: Any, names: dict[str, Any]) -> Any:
        first, *pipes = (one.strip() for one in expression.split("|"))
        value = self._call(shlex.split(first, posix=False), dot, names)
        for pipe in pipes:
            name, *arguments = pipe.split()
            value = _FUNCTIONS[name](value, *arguments)
        return value

    def _call(self, words: list[str], dot: Any, names: dict[str, Any]) -> Any:
        if len(words) == 1:
            return _looked_up(words[0], dot, names)
        function, *arguments = words
        if function == "include":
            name, given = arguments
            return self._text(self._defined[name.strip('"')], _looked_up(given, dot, names), names)
        return _FUNCTIONS[function](*(_looked_up(one, dot, names) for one in arguments))


def _looked_up(word: str, dot: Any, names: Mapping[str, Any]) -> Any:
    if word.startswith('"'):
        return word.strip('"')
    head, *path = word.split(".")
    value = names[head] if head else dot
    for part in path:
        if part:
            assert part in value, f"the chart has no value {word}"
            value = value[part]
    return value


def _to_yaml(value: Any) -> str:
    text: str = yaml.safe_dump(value, sort_keys=True, default_flow_style=False)
    return text.rstrip("\n")


def _indented(text: str, count: str) -> str:
    return "\n" + "\n".join(" " * int(count) + line for line in text.splitlines())


_FUNCTIONS: dict[str, Any] = {
    "quote": lambda value: '"' + str(value).replace('"', '\\"') + '"', "toYaml": _to_yaml, "nindent": _indented,
    "not": lambda value: not value,
}  # fmt: skip


def _tokens(text: str) -> Iterator[tuple[bool, str]]:
    """Texts, and actions (True). A dash eats the white space on its side."""
    place = 0
    for found in _ACTION.finditer(text):
        before, left, action, right, after = found.groups()
        yield False, text[place : found.start()] + ("" if left else before)
        yield True, action
        place = found.end() if right else found.end() - len(after)
    yield False, text[place:]


def _parsed(tokens: Iterator[tuple[bool, str]]) -> tuple[list[Node], str | None]:
    """The nodes until an `end` or `else`, which is returned."""
    nodes: list[Node] = []
    for is_action, text in tokens:
        if not is_action:
            nodes.append(text)
        elif text in ("end", "else"):
            return nodes, text
        elif text.split()[0] in ("if", "range", "define"):
            inner, closed = _parsed(tokens)
            otherwise: list[Node] = []
            if closed == "else":
                otherwise, closed = _parsed(tokens)
            assert closed == "end", f"{text} is not closed"
            nodes.append((text, inner, otherwise))
        else:
            nodes.append((text, [], []))
    return nodes, None
