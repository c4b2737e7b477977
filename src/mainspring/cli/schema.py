"""`mainspring schema`"""

from __future__ import annotations

from mainspring.cli.screen import show_output

EXAMPLES = ("mainspring schema > mainspring.schema.json",)


def command() -> None:
    """Print the JSON Schema of job files, for editors. A file names it in its first line:
    # yaml-language-server: $schema=mainspring.schema.json"""
    from mainspring.cli.job_files.file_schema import schema_text

    show_output(schema_text(), raw=True)
