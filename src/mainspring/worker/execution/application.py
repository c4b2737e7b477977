"""Loads the application that a worker serves."""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module
from pathlib import Path

import mainspring
from mainspring.domain.errors import InvalidInput
from mainspring.sdk.app.app import Mainspring

_PACKAGE = str(Path(mainspring.__file__).parent) + os.sep


def load_app(name: str) -> Mainspring:
    """The application that `module:attribute` names. Modules are searched in the current folder first."""
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise InvalidInput(f"app: {name!r} is not of the form module:attribute", field="app", hint="such as hello:app")
    here = os.getcwd()  # noqa: PTH109 - sys.path takes text
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except Exception as error:  # the module is user code and may raise anything
        frames = _own_frames(error)
        raise InvalidInput(
            f"app: cannot import {module_name}: {type(error).__name__}: {error}\n{''.join(frames)}".rstrip(),
            field="app",
            hint=f"modules are searched in {here} and in the installed packages"
            if isinstance(error, ImportError)
            else None,
        ) from error
    app = getattr(module, attribute, None)
    if not isinstance(app, Mainspring):
        found = "nothing" if app is None else f"a {type(app).__name__}"
        raise InvalidInput(
            f"app: {name} is {found}, not a Mainspring application", field="app", hint="app = Mainspring()"
        )
    return app


def _own_frames(error: Exception) -> list[str]:
    """The last frames in user code, without those of the import system and of this package."""
    steps = [step for step in traceback.extract_tb(error.__traceback__) if not step.filename.startswith("<frozen")]
    own = [step for step in steps if not step.filename.startswith(_PACKAGE) and "/importlib/" not in step.filename]
    return traceback.format_list(own[-3:])
