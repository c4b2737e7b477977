"""`make audit`, second part: asks the vulnerability service of pip-audit about every version of requirements.lock.

Exits with 1 if a vulnerability is known. If the service cannot be asked, it says so and exits with 0: a closed network
is no finding.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tools.shipped import LOCK

_OPTIONS = ("--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json", "--timeout", "15")


def findings(report: str) -> list[str]:
    """The vulnerabilities in a report of pip-audit, a line each. Raises ValueError if it is no report."""
    try:
        packages = json.loads(report)["dependencies"]
    except (KeyError, TypeError) as error:
        raise ValueError("not a report of pip-audit") from error
    return [
        f"{package['name']} {package['version']}: {vulnerability['id']}, fixed in "
        f"{', '.join(vulnerability['fix_versions']) or 'no version'}"
        for package in packages
        for vulnerability in package.get("vulns", ())
    ]


def audit(program: Path) -> int:
    if not program.exists():
        print("vulnerabilities: not checked, pip-audit is not installed and cannot be installed here")
        return 0
    done = subprocess.run([program, "-r", LOCK, *_OPTIONS], capture_output=True, text=True, check=False)
    try:
        found = findings(done.stdout)
    except ValueError:
        reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        print(f"vulnerabilities: not checked, the service cannot be asked from here ({reason[:200]})")
        return 0
    print("\n".join([*found, f"vulnerabilities: {len(found)} known in {LOCK.name}"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(audit(Path(sys.argv[1])))
