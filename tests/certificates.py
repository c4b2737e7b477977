"""Certificates for tests, made with openssl: one authority, and as many certificates of it as a test needs."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

# Trusts nobody: for clients that speak plain HTTP. To read the authorities of the system takes 50 ms of CPU.
NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Issued(NamedTuple):
    cert: Path
    key: Path

    @property
    def options(self) -> tuple[str, str, str, str]:
        """As options of a server."""
        return "--tls-cert", str(self.cert), "--tls-key", str(self.key)


class Authority:
    def __init__(self, folder: Path, name: str = "ca") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("needs openssl")
        self.folder = folder
        self.ca = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        _openssl("req", "-x509", *_NEW_KEY, "-days", "2", "-subj", f"/CN={name}", "-keyout", self._key, "-out", self.ca)

    def issue(self, name: str, *names: str, days: int = 2) -> Issued:
        """A certificate for `names`, such as DNS:localhost and IP:127.0.0.1. Negative `days`: it has expired."""
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        issued = Issued(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        _openssl("req", "-new", *_NEW_KEY, "-subj", f"/CN={name}", "-keyout", issued.key, "-out", request)
        extensions.write_text(f"subjectAltName={','.join(names)}\nextendedKeyUsage=serverAuth\n")
        signed_by = ("-CA", self.ca, "-CAkey", self._key, "-CAcreateserial")
        _openssl(
            "x509", "-req", "-in", request, *signed_by, "-days", str(days), "-extfile", extensions, "-out", issued.cert
        )
        return issued


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
