"""`mainspring audit`"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.listing import (
    Listing,
    ListOptions,
    PageCursor,
    PageLimit,
    more_pages,
    show_list,
    with_list_options,
)
from mainspring.cli.noun import Noun
from mainspring.cli.screen import say, show_json, show_line
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainspring.cli.text_formats import TimeFormat
    from mainspring.domain.audit import ChainCheck, CheckedLink
    from mainspring.sdk.client.client import Client
    from mainspring.wire.audit import AuditChain, AuditEntry, ChainEnd

noun = Noun("audit", "The audit: who changed what, and whether that record is whole.")
_COLUMNS = (
    Column("TIME"),
    Column("BY", least=8),
    Column("OPERATION"),
    Column("KIND", rank=2),
    Column("ID", least=12),
    Column("CHANGE", rank=1, least=12),
    Column("ADDRESS", rank=3),
    Column("CLIENT", rank=4),
)
_PAGE = 1000
_BROKEN = 1
_NOTHING = object()

Who = Annotated[
    str | None, typer.Option("--who", metavar="TOKEN", help="The name or the id of a token.", show_default=False)
]
Operation = Annotated[
    str | None, typer.Option("--operation", metavar="NAME", help="Such as queues.pause.", show_default=False)
]
Kind = Annotated[
    str | None, typer.Option("--kind", metavar="KIND", help="Such as job, queue, limit or token.", show_default=False)
]
Id = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="The id or name of what was changed.", show_default=False)
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="T", help="Changes from this time on.", show_default=False)
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="T", help="Changes before this time.", show_default=False)
]


@noun.verb(
    "list",
    "mainspring audit list",
    "mainspring audit list --kind queue --id mails",
    "mainspring audit list --who ci --since 2026-01-01T00:00:00Z",
)
@with_list_options
def list_(
    who: Who = None,
    operation: Operation = None,
    kind: Kind = None,
    id: Id = None,
    since: Since = None,
    until: Until = None,
    limit: PageLimit = 20,
    cursor: PageCursor = None,
    *,
    options: ListOptions,
) -> None:
    """List changes: who changed what, newest first. Payloads and secrets are shown as digests."""

    def read(client: Client) -> Listing:
        page = client.audit(
            who=who, operation=operation, kind=kind, id=id, since=since, until=until, limit=limit, cursor=cursor
        )
        return Listing(
            page,
            _COLUMNS,
            lambda times: [_row(entry, times) for entry in page.entries],
            "no changes",
            more_pages(page.next),
        )

    show_list(options, read)


def _row(entry: AuditEntry, times: TimeFormat) -> tuple[str, ...]:
    return (
        times.brief(entry.at), entry.by, entry.operation, entry.kind, entry.id, _change(entry.before, entry.after),
        entry.address or "", entry.client or "",
    )  # fmt: skip


def _change(before: dict[str, Any] | None, after: dict[str, Any] | None) -> str:
    """Such as `queue: mails -> bulk`."""
    before, after = _flat(before or {}), _flat(after or {})
    words = []
    for name in {**before, **after}:
        if before.get(name, _NOTHING) == after.get(name, _NOTHING):
            continue
        old = f"{_value(before[name])} -> " if name in before else ""
        words.append(f"{name}: {old}{_value(after[name]) if name in after else 'gone'}")
    return ", ".join(words)


def _flat(members: dict[str, Any]) -> dict[str, Any]:
    """The members, with those of an object beside each other: `env.MODE`."""
    flat: dict[str, Any] = {}
    for name, value in members.items():
        if isinstance(value, dict) and "digest" not in value:
            flat |= {f"{name}.{inner}": one for inner, one in value.items()}
        else:
            flat[name] = value
    return flat


def _value(value: Any) -> str:
    if isinstance(value, dict) and "digest" in value:
        return f"digest {value['digest'][:8]}"
    import msgspec

    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


@noun.verb("export", "mainspring audit export > audit.jsonl", "mainspring audit export --since 2026-01-01T00:00:00Z")
def export(
    server: Server,
    who: Who = None,
    operation: Operation = None,
    kind: Kind = None,
    id: Id = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """Print changes as JSON lines, newest first: one change on each line. It is read page by page."""
    import msgspec

    with server.connect() as client:
        cursor = None
        while True:
            page = client.audit(
                who=who, operation=operation, kind=kind, id=id, since=since, until=until, limit=_PAGE, cursor=cursor
            )
            for entry in page.entries:
                sys.stdout.write(f"{msgspec.json.encode(entry).decode()}\n")
            sys.stdout.flush()
            cursor = page.next
            if cursor is None:
                return


@noun.verb(
    "verify",
    "mainspring audit verify",
    "mainspring audit verify --head 1200:9f2c...",
    "mainspring audit verify --all-tenants",
)
def verify(
    server: Server,
    head: Annotated[
        str | None,
        typer.Option(
            "--head",
            metavar="SEQ:HASH",
            help="A head that an earlier call printed. Keep it where those who can change the database cannot.",
            show_default=False,
        ),
    ] = None,
    all_tenants: Annotated[
        bool,
        typer.Option("--all-tenants", help="The chain of what concerns all tenants.", show_default=False),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Compute the hashes of all changes again and compare them. Names each broken link, and how many of the newest
    changes are not linked yet. The exit code is 1 if a link is broken."""
    noted = None if head is None else _head(head)
    with server.connect() as client:
        check, last = _verified(client, noted, all_tenants=all_tenants)
    found = {
        "links": check.seq,
        "head": None if check.seq == 0 else f"{check.seq}:{check.hash.hex()}",
        "anchor": None if last.anchor is None else last.anchor.seq,
        "unlinked": last.unlinked,
        "unlinked_since": last.unlinked_since,
        "problems": check.problems,
    }
    if as_json:
        show_json(found)
    else:
        for problem in check.problems:
            say(problem)
        state = "broken" if check.problems else "whole"
        dropped = "" if last.anchor is None else f", of which retention has dropped {last.anchor.seq}"
        show_line(f"the chain is {state}: {check.seq} links{dropped}")
        if last.unlinked:
            show_line(f"{last.unlinked} changes since {last.unlinked_since} are not linked yet")
        if check.seq:
            show_line(f"head {found['head']}")
    if check.problems:
        raise typer.Exit(_BROKEN)


def _verified(client: Client, noted: tuple[int, bytes] | None, *, all_tenants: bool) -> tuple[ChainCheck, AuditChain]:
    """The check of all links, and the last page of them."""
    from mainspring.domain.audit import FIRST_HASH, ChainCheck

    page = client.audit_chain(all_tenants=all_tenants, limit=_PAGE)
    check = ChainCheck(*(_place(page.anchor) or (0, FIRST_HASH)), noted)
    while True:
        for link in _links(page):
            check.take(link)
        if page.next_seq is None:
            check.end(_place(page.head))
            return check, page
        page = client.audit_chain(first=page.next_seq, all_tenants=all_tenants, limit=_PAGE)


def _place(end: ChainEnd | None) -> tuple[int, bytes] | None:
    return None if end is None else (end.seq, bytes.fromhex(end.hash))


def _links(page: AuditChain) -> Iterator[CheckedLink]:
    import msgspec

    from mainspring.domain.audit import CheckedLink, StoredEntry

    for link in page.links:
        entry = None if link.entry is None else msgspec.convert(msgspec.to_builtins(link.entry), StoredEntry)
        yield CheckedLink(link.seq, bytes.fromhex(link.entry_hash), bytes.fromhex(link.hash), entry, link.dropped)


def _head(text: str) -> tuple[int, bytes]:
    from mainspring.domain.errors import InvalidInput

    seq, _, digits = text.partition(":")
    try:
        return int(seq), bytes.fromhex(digits)
    except ValueError:
        raise InvalidInput(
            f"{text!r} is not a head of the chain", field="head", expected="a number, a colon and hexadecimal digits"
        ) from None
