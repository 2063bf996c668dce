"""Certificates for encrypted connections on this machine."""

import shutil
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

import dask
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


def requiring_encryption(folder: Path) -> AbstractContextManager[None]:
    """Let dask's configuration require encryption, with a certificate that is made in a folder."""
    security = security_in(folder)
    settings = {"require-encryption": True, "tls.ca-file": security.tls_ca_file}
    for role in ("worker", "scheduler", "client"):
        settings[f"tls.{role}.cert"] = security.tls_worker_cert
        settings[f"tls.{role}.key"] = security.tls_worker_key
    return dask.config.set({f"distributed.comm.{name}": v for name, v in settings.items()})
