"""Builds the dashboard while the package is built, if its sources have changed. See tools/page.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))

from tools import page


class PageBuildHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Node.js as a package, if it is needed and the machine has none."""
        skipped = os.environ.get(page.SETTING) == "skip" or page.is_current()
        return [] if skipped or page.has_npm() else [page.NODE_PACKAGE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wanted = os.environ.get(page.SETTING, "")
        if wanted == "skip":
            return
        try:
            page.build()
        except page.CannotBuild as error:
            if wanted == "required":
                raise
            self.app.display_warning(f"the dashboard is not built: {error}")
