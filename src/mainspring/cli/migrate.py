"""`mainspring migrate`"""

from __future__ import annotations

from mainspring.cli.connect import DatabaseUrlOption, JsonFlag, needed_database_url
from mainspring.cli.screen import say, show_json, show_line

EXAMPLES = ("mainspring migrate --database-url postgresql://mainspring@db/mainspring",)


def command(database_url: DatabaseUrlOption = None, as_json: JsonFlag = False) -> None:
    """Migrate a database to this version's schema. The command is safe to repeat and safe while servers run."""
    import uvloop

    from mainspring.store.migrate import migrate

    applied = uvloop.run(migrate(needed_database_url(database_url)))
    if as_json:
        show_json({"applied": applied})
        return
    for name in applied:
        show_line(f"applied {name}")
    if not applied:
        say("the database is up to date")
