"""Writes the software bill of materials of a wheel (CycloneDX 1.6, JSON) beside it: `python -m tools.sbom WHEEL`.

It lists what the wheel with the extra `up` needs at run time, in the versions that it was tested with, with licences
and hashes. The same wheel and lock give the same file.
"""

from __future__ import annotations

import hashlib
import json
import sys
import uuid
from email.message import Message
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.licences import licence
from tools.shipped import Pin, applies, pins, project, requirements, shipped


def bill(wheel: Path) -> dict[str, Any]:
    ours = project()
    packages, locked = shipped(), pins()
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    root = f"pkg:pypi/{ours['name']}@{ours['version']}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{root}#{digest}')}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": ours["name"],
                "version": ours["version"],
                "purl": root,
                "licenses": [{"expression": ours["license"]}],
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }
        },
        "components": [component(name, locked[name], package) for name, package in packages.items()],
        "dependencies": [
            {"ref": root, "dependsOn": _refs(requirements("up"), packages, locked)},
            *(
                {"ref": _ref(name, locked[name]), "dependsOn": _refs(package.requires or [], packages, locked)}
                for name, package in packages.items()
            ),
        ],
    }


def component(name: str, pin: Pin, package: metadata.Distribution) -> dict[str, Any]:
    """`hashes` has one entry for each file of this version: which one is installed depends on the platform."""
    reference = _ref(name, pin)
    return {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": pin.version,
        "purl": reference,
        "licenses": [{"license": {"name": licence(cast(Message, package.metadata))}}],
        "hashes": [{"alg": "SHA-256", "content": content} for content in pin.hashes],
    }


def _ref(name: str, pin: Pin) -> str:
    return f"pkg:pypi/{name}@{pin.version}"


def _refs(requirements: list[str], packages: dict[str, metadata.Distribution], locked: dict[str, Pin]) -> list[str]:
    needed = (Requirement(text) for text in requirements)
    names = {canonicalize_name(need.name) for need in needed if applies(need, set())}
    return [_ref(name, locked[name]) for name in sorted(names & packages.keys())]


def main(wheel: Path) -> None:
    target = wheel.with_name("-".join(wheel.name.split("-")[:2]) + ".cdx.json")
    target.write_text(json.dumps(bill(wheel), indent=1) + "\n")
    print(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
