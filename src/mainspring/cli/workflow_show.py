"""`mainspring workflow show`"""

from __future__ import annotations

from datetime import UTC, datetime

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.find_id import call_for_job
from mainspring.cli.listing import UtcFlag
from mainspring.cli.screen import show_json
from mainspring.cli.wording import Times
from mainspring.cli.workflow_showing import WorkflowArgument, show_whole_workflow

EXAMPLES = ("mainspring workflow show nightly", "mainspring workflow show nightly --json")


def command(
    workflow: WorkflowArgument,
    utc: UtcFlag = False,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Show a workflow: its schedule, its parameters and its steps."""
    with connect(url, token_file, data) as client:
        view = call_for_job(client, workflow, client.workflow)
    if as_json:
        show_json(view)
    else:
        show_whole_workflow(view, Times(datetime.now(UTC), utc))
