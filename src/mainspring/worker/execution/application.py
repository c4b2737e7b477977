"""Loads the application that a worker serves."""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType

import mainspring
from mainspring.domain.errors import InvalidInput
from mainspring.sdk.app.app import Mainspring

_PACKAGE = str(Path(mainspring.__file__).parent) + os.sep


def _is_a_file(module_name: str) -> bool:
    return "/" in module_name or module_name.endswith(".py")


def _form(name: str) -> str:
    """What to write for an application that is not named as one."""
    path, _, attribute = name.partition(":")
    if _is_a_file(path):
        file = Path(path)
        where = "" if str(file.parent) == "." else f", in the folder {file.parent}"
        return f"name the module, not its file: {file.stem}:{attribute or 'app'}{where}"
    return f"such as {path or 'hello'}:app"


def load_app(name: str) -> Mainspring:
    """The application that `module:attribute` names. Modules are searched in the current folder first."""
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute) or _is_a_file(module_name):
        raise InvalidInput(f"{name!r} is not of the form module:attribute", field="app", hint=_form(name))
    here = os.getcwd()  # noqa: PTH109 - sys.path takes text
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except Exception as error:  # the module is user code and may raise anything
        raise InvalidInput(
            f"app: cannot import {module_name}: {type(error).__name__}: {error}{_place_of(error)}",
            field="app",
            hint=f"modules are searched in {here} and in the installed packages"
            if isinstance(error, ImportError)
            else None,
        ) from error
    app = getattr(module, attribute, None)
    if isinstance(app, Mainspring):
        return app
    if hasattr(module, attribute):
        kind = "None" if app is None else f"of type {type(app).__name__}"
        detail = f"app: {name} is {kind}, not a Mainspring application"
    else:
        detail = f"app: the module {module_name} has no {attribute!r}"
    raise InvalidInput(detail, field="app", hint=_applications_of(module))


def _applications_of(module: ModuleType) -> str:
    """What to write instead: the applications that the module has."""
    found = [name for name, value in vars(module).items() if isinstance(value, Mainspring)]
    if not found:
        return f"the module has no application; add app = Mainspring() to {module.__file__ or 'it'}"
    return f"use {' or '.join(f'{module.__name__}:{name}' for name in found[:5])}"


def _place_of(error: Exception) -> str:
    """The last line of user code that the error came through, without the import system and this package."""
    steps = [step for step in traceback.extract_tb(error.__traceback__) if not step.filename.startswith("<frozen")]
    own = [step for step in steps if not step.filename.startswith(_PACKAGE) and "/importlib/" not in step.filename]
    if not own:
        return ""
    return f" ({own[-1].filename}, line {own[-1].lineno}: {own[-1].line})"
