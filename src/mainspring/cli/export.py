"""`mainspring export`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainspring.cli.connect import Server
from mainspring.cli.screen import say, show_output

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.files import ExportedObject

EXAMPLES = (
    "mainspring export > jobs.yaml",
    "mainspring export --owner billing --output jobs.yaml",
    "mainspring export --kind jobs --kind calendars",
)
_NEW_OWNER = "exported"
_VALUES = """Values of secrets are not exported. Here they stay as they are; for another installation add them as
value: {env: NAME} or {file: PATH}, and likewise the secret fields of channels."""


def command(
    server: Server,
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="NAME", help="Only what the files of this owner have.")
    ] = None,
    kinds: Annotated[
        list[str] | None,
        typer.Option("--kind", metavar="KIND", help="A section: jobs, workflows, channels...; can be repeated."),
    ] = None,
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Instead of stdout.")] = None,
) -> None:
    """Print what there is as a job file whose application changes nothing. Without --owner: what no file owns and no
    code declares."""
    from mainspring.cli.job_files.file_writer import job_file_text
    from mainspring.domain.errors import InvalidInput
    from mainspring.domain.texts import meant
    from mainspring.wire.files import FILE_KINDS

    for kind in kinds or ():
        if kind not in FILE_KINDS:
            hint = meant(kind, FILE_KINDS, f"there are {', '.join(FILE_KINDS)}")
            raise InvalidInput(f"{kind!r} is not a kind", field="kind", hint=hint)
    sections: dict[str, dict[str, Any]] = {}
    left_out: list[str] = []
    with server.connect() as client:
        for kind in kinds or FILE_KINDS:
            for one in _objects(client, kind, owner):
                other = _other_owner(one, owner)
                if other is None:
                    sections.setdefault(kind, {})[one.id] = one.body
                else:
                    left_out.append(f"{FILE_KINDS[kind].noun} {one.id}: {other}")
    hides = any(FILE_KINDS[kind].secrets for kind in sections)
    text = job_file_text(owner or _NEW_OWNER, sections, [_VALUES] if hides else [])
    if output is None:
        show_output(text, raw=True)
    else:
        Path(output).write_text(text, encoding="utf-8")
        count = sum(map(len, sections.values()))
        say(f"{count} in {output}")
    for line in left_out:
        say(f"left out: {line}")


def _objects(client: Client, kind: str, owner: str | None) -> list[ExportedObject]:
    found: list[ExportedObject] = []
    cursor: str | None = None
    while True:
        page = client.export_files(kind, owner=owner, cursor=cursor)
        found += page.objects
        if page.next is None:
            return sorted(found, key=lambda one: one.id)
        cursor = page.next


def _other_owner(one: ExportedObject, owner: str | None) -> str | None:
    if one.declared_by is not None:
        return f"the code of the application {one.declared_by} declares it"
    return None if one.owner == owner else f"the files of {one.owner} own it; see --owner {one.owner}"
