"""`mainspring workflow pause`"""

from __future__ import annotations

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.find_id import call_for_job
from mainspring.cli.workflow_showing import WorkflowArgument, show_workflow

EXAMPLES = ("mainspring workflow pause nightly",)


def command(
    workflow: WorkflowArgument,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Stop firing a workflow until `mainspring workflow resume`. Runs that have fired continue."""
    with connect(url, token_file, data) as client:
        show_workflow(call_for_job(client, workflow, client.pause_workflow), as_json=as_json)
