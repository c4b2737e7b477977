"""Parts of libraries that their documentation does not promise. A new version of a library may move them.

`PARTS` says for each of them which files use it, and what to do when it has moved. A library in this table has an upper
bound in pyproject.toml. To raise a bound, install the new version and run this test: it names what has moved.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest
import uvicorn
from asyncpg.pool import PoolConnectionHolder
from packaging.requirements import Requirement
from packaging.version import Version

import mainspring
from mainspring.domain.intake.decoding_errors import in_words
from tests.sources import parsed
from tools.shipped import requirements

SOURCE = Path(mainspring.__file__).parent


@dataclass(frozen=True, slots=True)
class Part:
    """library: its name in pyproject.toml. name: the part. files: those that use it. instead: what to do when it has
    moved. check: raises if the part is not as we use it. private: its names that begin with an underscore."""

    library: str
    name: str
    files: tuple[str, ...]
    instead: str
    check: Callable[[], None]
    private: frozenset[str] = frozenset()


def has(thing: Any, *names: str) -> None:
    missing = [name for name in names if not hasattr(thing, name)]
    assert not missing, f"{thing!r} has no {', '.join(missing)}"


def takes(function: Any, *names: str) -> None:
    """Check the names of the first parameters, without `self`."""
    found = [name for name in inspect.signature(function).parameters if name != "self"]
    assert tuple(found[: len(names)]) == names, f"{function.__qualname__} takes {', '.join(found)}"


def takes_keywords(function: Any, *names: str) -> None:
    missing = set(names) - inspect.signature(function).parameters.keys()
    assert not missing, f"{function.__qualname__} does not take {', '.join(sorted(missing))}"


def said(decoded: Any, body: bytes) -> str:
    with pytest.raises(msgspec.DecodeError) as refusal:
        msgspec.json.decode(body, type=decoded)
    return str(refusal.value)


# --- uvicorn


async def _nothing(scope: Any, receive: Any, send: Any) -> None: ...


def _connection_of_uvicorn() -> Any:
    module, state = import_module("uvicorn.protocols.http.httptools_impl"), import_module("uvicorn.server")
    loop = asyncio.new_event_loop()
    try:
        made = module.HttpToolsProtocol(
            config=uvicorn.Config(_nothing), server_state=state.ServerState(), app_state={}, _loop=loop
        )
    finally:
        loop.close()
    made.on_message_begin()
    return made


def uvicorn_connection() -> None:
    made = _connection_of_uvicorn()
    has(made, "client", "cycle", "flow", "headers", "parser", "pipeline", "scheme", "scope", "transport", "url")
    has(made.server_state, "total_requests")
    takes(made.connection_made, "transport")
    takes(made.connection_lost, "exc")
    takes(made.data_received, "data")
    takes(made.on_body, "body")
    takes(made._start_asgi_task, "cycle", "app")
    for name in ("on_headers_complete", "on_message_complete", "on_response_complete", "pause_writing"):
        takes(getattr(made, name))
    took_part = inspect.getsource(type(made).on_headers_complete)
    assert "self._start_asgi_task(self.cycle, app)" in took_part, "requests begin elsewhere"
    assert "on_response=self.on_response_complete" in took_part, "answers end elsewhere"
    assert "self.pipeline.appendleft((self.cycle, app))" in took_part, "requests wait elsewhere"


def uvicorn_names() -> None:
    """An attribute of ours must not replace one of theirs."""
    [ours] = [node for node in _tree("api/http_protocol.py").body if getattr(node, "name", "") == "BoundedHttpProtocol"]
    stored = {
        node.attr
        for node in ast.walk(ours)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }
    assert "deadline" in stored
    both = stored & set(dir(_connection_of_uvicorn()))
    assert both == {"cycle", "flow", "headers", "scope", "url"}, f"names of uvicorn and of ours: {sorted(both)}"


def uvicorn_cycle() -> None:
    cycle = import_module("uvicorn.protocols.http.httptools_impl").RequestResponseCycle
    made = cycle(**dict.fromkeys(inspect.signature(cycle).parameters))
    has(made, "default_headers", "disconnected", "keep_alive", "message_event", "more_body", "response_complete")
    has(made, "response_started", "scope", "send", "transport")
    assert "self.receive, self.send" in inspect.getsource(cycle.run_asgi), "`send` is not looked up in the request"
    assert vars(made).keys() >= {"transport", "keep_alive"}, "they cannot be replaced for one request"


def uvicorn_flow() -> None:
    flow = import_module("uvicorn.protocols.http.flow_control").FlowControl
    takes(flow, "transport")
    has(flow(None), "read_paused", "write_paused", "resume_reading")


def uvicorn_signals() -> None:
    server = uvicorn.Server(uvicorn.Config(_nothing))
    server.handle_exit(2, None)
    assert server._captured_signals == [2], "uvicorn does not raise the signal again, or in another way"
    has(server, "startup", "shutdown", "server_state")
    source = inspect.getsource(uvicorn.Server)
    assert "self.servers" in source, "the sockets that listen are elsewhere"
    assert "self.lifespan" in source, "the application's state is elsewhere"


# --- asyncpg


def asyncpg_execute() -> None:
    for name in ("fetch", "fetchrow", "fetchval", "execute"):
        assert "self._execute(" in inspect.getsource(getattr(asyncpg.Connection, name)), f"{name} goes another way"
    takes(asyncpg.Connection._execute, "query", "args", "limit", "timeout")


def asyncpg_statement() -> None:
    takes(asyncpg.Connection._get_statement, "query", "timeout")
    takes_keywords(asyncpg.Connection._get_statement, "named", "ignore_custom_codec", "record_class")
    source = inspect.getsource(asyncpg.Connection)
    assert "statement.mark_unprepared()" in source, "asyncpg parses unnamed statements again in another way"
    assert source.count("self._get_statement(") >= 3, "statements are prepared elsewhere"


def asyncpg_steps() -> None:
    takes(asyncpg.Connection._do_execute, "query", "executor", "timeout")
    source = inspect.getsource(asyncpg.Connection)
    assert source.count("await self._do_execute(") == 4, "statements are executed elsewhere"
    assert "self._protocol = None" in source, "a connection that is terminated keeps its protocol"


def asyncpg_types() -> None:
    takes(asyncpg.Connection._introspect_types, "typeoids", "timeout")
    source = inspect.getsource(asyncpg.Connection._get_statement)
    assert "types, intro_stmt = await self._introspect_types(" in source, "types are asked for in another way"
    assert source.count("intro_stmt") == 2 and "not intro_stmt.name" in source, "more of the statement is used"


def asyncpg_queue() -> None:
    pool = inspect.getsource(asyncpg.Pool)
    assert "await self._queue.get()" in pool, "connections are taken from elsewhere"
    assert "self._pool._queue.put_nowait(self)" in inspect.getsource(PoolConnectionHolder), "they go back elsewhere"
    used = {line.partition("self._queue.")[2].partition("(")[0] for line in pool.splitlines() if "self._queue." in line}
    # get_disconnected_nowait is called for pools with a min_size alone; ours is 0
    assert used <= {"get", "put_nowait", "get_disconnected_nowait"}, f"FairQueue has to know {sorted(used)}"
    has(PoolConnectionHolder, "terminate")


def asyncpg_transport() -> None:
    assert "_transport" in asyncpg.Connection.__slots__


# --- msgspec


class _Inner(msgspec.Struct, forbid_unknown_fields=True):
    number: int


class _Outer(msgspec.Struct):
    inner: _Inner


def msgspec_fields() -> None:
    for body, field, expected in (
        (b'{"inner": {"number": 1, "other": 2}}', "inner.other", None),
        (b'{"inner": {}}', "inner.number", None),
        (b'{"inner": {"number": "1"}}', "inner.number", "a whole number"),
        (b"[]", "$", "an object"),
    ):
        with pytest.raises(msgspec.ValidationError) as refusal:
            msgspec.json.decode(body, type=_Outer)
        words = in_words(refusal.value, _Outer)
        assert (words.field, words.expected) == (field, expected), str(refusal.value)


def msgspec_ends() -> None:
    assert "trailing characters (byte 3)" in said(msgspec.Raw, b"{},{}")
    assert "truncated" in said(msgspec.Raw, b'{"a":')


# --- others


def httpx_command_line() -> None:
    source = inspect.getsource(import_module("httpx"))
    assert "try:\n    from ._main import main\nexcept ImportError" in source, "httpx needs its command line"


def holidays_names() -> None:
    names = import_module("holidays.registry").COUNTRIES
    assert names["germany"][1] == "DE", "the second name is not the code"


def typer_completion() -> None:
    takes_keywords(
        import_module("typer._completion_shared").get_completion_script, "prog_name", "complete_var", "shell"
    )


def json_path_nodes() -> None:
    library = import_module("jsonpath_rfc9535")
    takes(library.JSONPathNode.new_child, "value", "key", "parent")
    takes_keywords(library.JSONPathQuery, "env", "segments")
    query = library.compile("$[?@.a == 1]")
    [selector] = query.segments[0].selectors
    has(selector.expression, "token", "expression", "evaluate")
    has(selector.expression.expression, "left", "right")
    assert "new_child(" in inspect.getsource(import_module("jsonpath_rfc9535.selectors")), "nodes are made elsewhere"


_PROTOCOL = "api/http_protocol.py"
_OVERRIDE = "compare what it overrides with the new class, method by method; tests/attack/test_edge.py shows the bounds"
PARTS = (
    Part("uvicorn", "HttpToolsProtocol", (_PROTOCOL,), _OVERRIDE, uvicorn_connection, frozenset({"_start_asgi_task"})),
    Part("uvicorn", "names of HttpToolsProtocol", (_PROTOCOL,), "rename the attribute of ours", uvicorn_names),
    Part("uvicorn", "RequestResponseCycle", (_PROTOCOL,), _OVERRIDE, uvicorn_cycle),
    Part("uvicorn", "FlowControl", (_PROTOCOL,), _OVERRIDE, uvicorn_flow),
    Part(
        "uvicorn", "Server._captured_signals and its startup", ("roles/server.py",),
        "a server that is told to stop must end with exit code 0: see how the new version raises the signal again",
        uvicorn_signals, frozenset({"_captured_signals"}),
    ),
    Part(
        "asyncpg", "Connection._execute", ("store/pooled_connection.py",),
        "every statement through a PgBouncer needs a transaction: override what all fetches call now",
        asyncpg_execute, frozenset({"_execute"}),
    ),
    Part(
        "asyncpg", "Connection._get_statement and mark_unprepared", ("store/pooled_connection.py",),
        "statements through a PgBouncer have no name and are parsed again: override what prepares them now",
        asyncpg_statement, frozenset({"_get_statement"}),
    ),
    Part(
        "asyncpg", "Connection._do_execute and _protocol", ("store/pooled_connection.py",),
        "a connection may be terminated between two steps of a statement: make an outage of what is raised then",
        asyncpg_steps, frozenset({"_do_execute"}),
    ),
    Part(
        "asyncpg", "Connection._introspect_types", ("store/pooled_connection.py",),
        "array types of PostgreSQL itself are asked for once in a process: override what asks for them now, or drop it",
        asyncpg_types, frozenset({"_introspect_types"}),
    ),
    Part(
        "asyncpg", "Pool._queue", ("store/fair_queue.py", "store/connection_budget.py", "store/pool.py"),
        "whoever has waited longest gets the next connection: replace the queue of the new version by FairQueue",
        asyncpg_queue, frozenset({"_queue"}),
    ),
    Part(
        "asyncpg", "Connection._transport", ("store/pool.py",),
        "find the socket elsewhere: without its options a dead peer is noticed after minutes",
        asyncpg_transport, frozenset({"_transport"}),
    ),
    Part(
        "msgspec", "messages about fields", ("domain/intake/decoding_errors.py",),
        "adapt the patterns: users see the field and what was expected", msgspec_fields,
    ),
    Part(
        "msgspec", "messages about where a value ends", ("api/array_scanner.py", "api/large_batch.py"),
        "adapt the pattern, or find the end of an element in another way", msgspec_ends,
    ),
    Part(
        "typer", "_completion_shared.get_completion_script", ("cli/completion.py",),
        "take the script from where the new version has it", typer_completion,
        frozenset({"_completion_shared"}),
    ),
    Part(
        "httpx", "_main", ("kernel/light_httpx.py",),
        "leave out what the new version loads for its command line, or import httpx as it is: 90 ms for each command",
        httpx_command_line,
    ),
    Part(
        "holidays", "registry.COUNTRIES", ("domain/schedules/holiday_sets.py",),
        "take the names of countries from where the new version has them: hints name the code of a country",
        holidays_names,
    ),
    Part(
        "jsonpath-rfc9535", "nodes, queries and filters", ("kinds/http/json_path.py",),
        "the evaluation has a budget: count steps where the new version makes nodes and evaluates filters",
        json_path_nodes,
    ),
)  # fmt: skip


WITHOUT_A_BOUND = {"holidays": "its versions are data: each month the days that governments have changed"}


def check(part: Part) -> None:
    try:
        part.check()
    except (Exception, pytest.fail.Exception) as error:
        raise AssertionError(
            f"{part.library} {metadata.version(part.library)} has moved a private part: {part.name} ({error}). "
            f"It is used in {', '.join(part.files)}. {part.instead}"
        ) from error


@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part.library}: {part.name}")
def test_a_private_part_is_where_we_use_it(part: Part) -> None:
    check(part)


def test_a_part_that_moves_is_named_with_our_files_and_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    [queue] = [part for part in PARTS if part.name == "Pool._queue"]
    monkeypatch.delattr(PoolConnectionHolder, "terminate")
    with pytest.raises(
        AssertionError, match=r"asyncpg [\d.]+ has moved .*_queue (?s:.*)store/fair_queue\.py.* FairQueue"
    ):
        check(queue)


def test_a_library_whose_private_parts_are_used_has_an_upper_bound_and_is_installed_within_it() -> None:
    bounds = {one.name: one for one in map(Requirement, requirements("up"))}
    for library in sorted({part.library for part in PARTS} - WITHOUT_A_BOUND.keys()):
        specifier, installed = bounds[library].specifier, Version(metadata.version(library))
        following = f"{installed.major}.{installed.minor + 1}.0"
        assert specifier.contains(installed), f"{library} {installed} is installed, allowed is {specifier}"
        assert not specifier.contains(following), f"pyproject.toml allows {library} {following}, which was not tested"


@pytest.mark.slow
def test_every_private_name_of_a_library_is_in_the_table() -> None:
    known = {(file, name) for part in PARTS for file in part.files for name in part.private}
    found = set(private_names())
    assert found <= known, f"add a Part that says what to do when it moves: {sorted(found - known)}"
    named = {name for _, name in known}
    assert named == {name for _, name in found}, "the table has names that are not used any more"
    for part in PARTS:
        assert [file for file in part.files if not (SOURCE / file).is_file()] == []


# Parts of Python itself that are documented, and of namedtuple.
_OF_PYTHON = frozenset({"_exit", "_getframe", "_current_frames", "_replace", "_fields"})


_METHOD_OR_FIELD = re.compile(r"\bdef (_\w+)|^ +(_\w+): ", re.MULTILINE)
_SET = re.compile(r"\bself\.(_\w+)(?=(?:, self\.\w+)*(?:: [^=\n]+)? = )|\b(_\w+) ?= ?|^ +(_\w+): ", re.MULTILINE)
_USED = re.compile(r"(?<=[\w\])])\.(_[a-z]\w*)|attr\(\w+, \"(_[a-z]\w*)\"")
_IMPORTED = re.compile(r"^ *from (?!mainspring)[\w.]+ import (?:[\w ,]+, )?(_[a-z]\w*)", re.MULTILINE)


def private_names() -> Iterator[tuple[str, str]]:
    """The file and the name, for each private name that is used and that is not our own: what is used of `self` is
    set in one of our files, what is used of another object in the same file, or it is a method or a field of ours."""
    texts = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    shared = {name for text in texts.values() for name in _names(_METHOD_OR_FIELD, text)}
    stored = {file: shared | set(_names(_SET, text)) for file, text in texts.items()}
    anywhere = set().union(*stored.values())
    for file, text in texts.items():
        for found in _USED.finditer(text):
            before, name = text[max(0, found.start() - 8) : found.start()], found[1] or found[2]
            ours = anywhere if before.endswith(("self", "cls")) else stored[file]
            if (before.endswith("super()") or name not in ours) and name not in _OF_PYTHON:
                yield file, name
        yield from ((file, name) for name in _IMPORTED.findall(text))


def _names(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    return (name for found in pattern.findall(text) for name in found if name)


def _tree(file: str) -> ast.Module:
    return parsed((SOURCE / file).read_text())
