"""`mainspring workflow resume`"""

from __future__ import annotations

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.find_id import call_for_job
from mainspring.cli.workflow_showing import WorkflowArgument, show_workflow

EXAMPLES = ("mainspring workflow resume nightly",)


def command(
    workflow: WorkflowArgument,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Let a paused workflow fire again, from its next time on."""
    with connect(url, token_file, data) as client:
        show_workflow(call_for_job(client, workflow, client.resume_workflow), as_json=as_json)
