"""`mainspring workflow apply`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import show_json, show_line
from mainspring.cli.workflow_showing import FileArgument

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client

EXAMPLES = ("mainspring workflow apply nightly.yaml", "mainspring workflow apply - < nightly.json")


def command(
    file: FileArgument,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Make the workflows of a file so: create them, or change what differs. Fields that the file does not set stay as
    they are. Runs that have fired keep the definition that they were fired with."""
    from mainspring.cli.workflow_file import read_with_lines

    workflows = read_with_lines(file)
    bodies = [body for body, _ in workflows]
    _check_ids(bodies)
    with connect(url, token_file, data) as client:
        for body, lines in workflows:
            with lines.named():
                client.check_workflow(body)  # nothing is changed if one of them is wrong
        for body in bodies:
            done, view = _apply(client, body)
            if as_json:
                show_json(view)
            else:
                show_line(f"workflow {body['workflow_id']} {done}")


def _check_ids(bodies: list[dict[str, Any]]) -> None:
    from mainspring.domain.errors import InvalidInput

    for body in bodies:
        if not body.get("workflow_id"):
            raise InvalidInput(
                "a workflow of the file has no id", field="workflow_id", hint="add a line such as workflow_id: nightly"
            )


def _apply(client: Client, body: dict[str, Any]) -> tuple[str, Any]:
    """What was done, and the server's answer."""
    from mainspring.domain.errors import NotFound
    from mainspring.sdk.app.ensure_workflows import workflow_differences

    workflow_id = body["workflow_id"]
    try:
        before = client.workflow(workflow_id)
    except NotFound:
        return "created", client.create_workflow(body)
    if before.status == "CANCELLED":
        return "created again", client.create_workflow(body)
    changes = workflow_differences(before, client.job(workflow_id), body)
    if not changes:
        return "unchanged", before
    after = client.update_workflow(workflow_id, if_version=before.version, **changes)
    return f"changed, version {after.version}: {', '.join(changes)}", after
