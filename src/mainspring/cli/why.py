"""`mainspring why`"""

from __future__ import annotations

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import show_json, show_line
from mainspring.cli.which_run import RunOrJob, call_for_run

EXAMPLES = ("mainspring why 6f0a8b11",)


def command(
    run_or_job: RunOrJob,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Explain in one sentence why a run is not running."""
    with connect(url, token_file, data) as client:
        answer = call_for_run(client, run_or_job, client.why)
    if as_json:
        show_json(answer)
    else:
        show_line(f"{answer.status}: {answer.why}")
