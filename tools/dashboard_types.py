"""Write the API types of the dashboard from the schemas of the OpenAPI document.

The first line of the types has the digest of the schemas, by which a test sees that they are out of date.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import msgspec

from mainspring.api.app import app_without_a_server
from mainspring.api.openapi.document import document

DASHBOARD = Path(__file__).resolve().parents[1] / "dashboard"
TYPES = DASHBOARD / "src/api/schema.ts"


def described() -> bytes:
    """A document with the schemas alone. Paths and the version of the product do not change the types."""
    schemas = document(app_without_a_server())["components"]["schemas"]
    info = {"title": "Mainspring", "version": "1"}
    whole = {"openapi": "3.1.0", "info": info, "paths": {}, "components": {"schemas": schemas}}
    return msgspec.json.encode(whole, order="sorted")


def digest() -> str:
    return hashlib.sha256(described()).hexdigest()[:16]


def main() -> int:
    made = subprocess.run(
        ["npx", "--no-install", "openapi-typescript", "--root-types", "--root-types-no-schema-prefix"],
        input=described(), capture_output=True, cwd=DASHBOARD, check=False, timeout=120,
    )  # fmt: skip
    if made.returncode != 0:
        sys.stderr.write(made.stderr.decode())
        return 1
    TYPES.write_text(f"// {digest()} Made by `python -m tools.dashboard_types`.\n{made.stdout.decode()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
