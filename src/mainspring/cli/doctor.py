"""`mainspring doctor`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.exit_codes import FAILURE, UNAVAILABLE
from mainspring.cli.extras import extra_missing, missing_modules
from mainspring.cli.screen import say, show_json, show_line
from mainspring.store.database import Database

if TYPE_CHECKING:
    from mainspring.roles.checkup.findings import Finding

EXAMPLES = (
    "mainspring doctor",
    "mainspring doctor --database-url-file database-url",
    "mainspring doctor --json | jq '.findings[] | select(.severity != \"ok\")'",
)


def command(server: Server, database: Database | None = None, as_json: JsonFlag = False) -> None:
    """Check an installation from the outside in, and say how to fix what is wrong.

    It looks at the way to the server, TLS, the token, clocks, versions, workers and this machine. With the URL of the
    database, or in the data folder of `mainspring up`, also at PostgreSQL: its settings, what a failover may lose, and
    its limits. Exit 0 if all is well, 1 if something should be better, 6 if something does not work.
    """
    from mainspring.roles.checkup.findings import Severity

    if database is not None and (missing := missing_modules()):
        raise extra_missing("a look at the database", missing[0], "server")
    findings = []
    for finding in _all(server, database):
        findings.append(finding)
        if not as_json:
            _show(finding)
    severities = {finding.severity for finding in findings}
    worst = next((each for each in (Severity.ERROR, Severity.WARNING) if each in severities), Severity.OK)
    if as_json:
        show_json({"status": worst, "findings": findings})
    elif worst is Severity.OK:
        say("all is well")
    else:
        counts = [
            (sum(found.severity is each for found in findings), each) for each in (Severity.ERROR, Severity.WARNING)
        ]
        say(", ".join(f"{count} {each}{'s' if count > 1 else ''}" for count, each in counts if count))
    raise typer.Exit({Severity.OK: 0, Severity.WARNING: FAILURE, Severity.ERROR: UNAVAILABLE}[worst])


def _all(server: Server, database: Database | None) -> list[Finding]:
    import uvloop

    from mainspring.kernel.clock import SYSTEM_CLOCK
    from mainspring.kernel.data_folder import found_folder, is_recorded
    from mainspring.roles.checkup.findings import ok
    from mainspring.roles.checkup.machine import check_machine
    from mainspring.roles.checkup.server import check_server

    folder = server.data or found_folder()
    with server.connect() as client:
        findings = list(check_server(client, SYSTEM_CLOCK))
    own = folder if folder is not None and (server.data is not None or is_recorded(folder)) else None
    if not missing_modules():
        from mainspring.roles.checkup.database import check_postgres, database_of

        if database is None and own is not None:
            database = database_of(own)
        if database is not None:
            findings += uvloop.run(check_postgres(database))
    elif own is not None:
        findings.append(ok("database", "not looked at: this installation has no extra server"))
    return [*findings, *check_machine(folder)]


def _show(finding: Finding) -> None:
    show_line(f"{finding.severity:8} {finding.check:16} {finding.found}")
    if finding.fix is not None:
        show_line(f"{'':25} fix: {finding.fix}")
