"""`mainspring completion`"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mainspring.cli import completing

_SHELLS = ("bash", "zsh", "fish")
EXAMPLES = (
    'eval "$(mainspring completion bash)"       # in ~/.bashrc',
    'eval "$(mainspring completion zsh)"        # in ~/.zshrc, after compinit',
    "mainspring completion fish | source        # in ~/.config/fish/config.fish",
)


def command(
    shell: Annotated[
        str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.", autocompletion=completing.words(*_SHELLS))
    ],
) -> None:
    """Print a script that completes commands, options, ids, tasks and queues in your shell."""
    from typer._completion_shared import get_completion_script

    from mainspring.domain.errors import InvalidInput

    if shell not in _SHELLS:
        raise InvalidInput(f"{shell!r} is not a known shell", field="shell", expected=", ".join(_SHELLS))
    script = get_completion_script(prog_name="mainspring", complete_var="_MAINSPRING_COMPLETE", shell=shell)
    sys.stdout.write(script + "\n")
