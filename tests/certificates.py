"""Certificates for encrypted connections on this machine."""

import shutil
import subprocess
from pathlib import Path

import pytest
from distributed.security import Security

_REQUEST = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=dpexec"]


def security_in(folder: Path) -> Security:
    """Dask's settings for encryption, with a certificate that is made in a folder.

    Tests are skipped where there is no openssl to make it.
    """
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [*_REQUEST, "-keyout", key, "-out", cert],
        check=True,
        capture_output=True,
    )
    settings = {"tls_ca_file": str(cert), "require_encryption": True}
    for role in ("client", "scheduler", "worker"):
        settings |= {f"tls_{role}_cert": str(cert), f"tls_{role}_key": str(key)}
    return Security(**settings)
