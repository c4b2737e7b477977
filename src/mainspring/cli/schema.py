"""`mainspring schema`"""

from __future__ import annotations

from mainspring.cli.screen import show_output

EXAMPLES = ("mainspring schema > mainspring.schema.json",)


def command() -> None:
    """Print the JSON Schema of job files, for editors. A file names it in its first line:
    # yaml-language-server: $schema=mainspring.schema.json"""
    from importlib.resources import files

    show_output((files("mainspring") / "wire" / "job-files.schema.json").read_text(encoding="utf-8"), raw=True)
