"""Parses sources of the project."""

from __future__ import annotations

import ast
import gc


def parsed(code: str) -> ast.Module:
    """`ast.parse`, without the garbage collector. In Python 3.11 a collection meanwhile can end in a SystemError: "AST
    constructor recursion depth mismatch"."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(code)
    finally:
        if collects:
            gc.enable()
