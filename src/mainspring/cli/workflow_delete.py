"""`mainspring workflow delete`"""

from __future__ import annotations

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.find_id import call_for_job
from mainspring.cli.workflow_showing import WorkflowArgument, show_workflow

EXAMPLES = ("mainspring workflow delete nightly",)


def command(
    workflow: WorkflowArgument,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Cancel a workflow, its live runs and all its future fires. Its history stays."""
    with connect(url, token_file, data) as client:
        show_workflow(call_for_job(client, workflow, client.delete_workflow), as_json=as_json)
