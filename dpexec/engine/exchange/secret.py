"""What processes of one run have in common, so that they can tell each other from strangers."""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.exchange.endpoints import Endpoint

__all__ = ["SECRET", "secret_of"]

SECRET = "DPEXEC_SECRET"
"""The environment variable with the secret of a run."""


def secret_of(endpoints: Sequence[Endpoint]) -> bytes:
    """The secret of a run: the environment variable ``DPEXEC_SECRET``.

    Processes that all listen on the loopback interface may leave it unset: they share a random
    secret in a file that only the user can read.

    Args:
        endpoints: where the processes of the run listen.

    Raises:
        EnforceNotMet: it is not set, and others could reach an endpoint.
    """
    given = os.environ.get(SECRET, "")
    if given:
        return given.encode()
    for endpoint in endpoints:
        if not _is_loopback(endpoint.host):
            raise EnforceNotMet(
                f"endpoint {endpoint} can be reached by others: set the environment variable "
                f"{SECRET} to the same random text in all processes of the run, for example to "
                "what `openssl rand -hex 32` prints"
            )
    return _secret_of_user()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _secret_of_user() -> bytes:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dpexec"
    path = folder / "secret"
    try:
        if not path.exists():
            _write(path)
        status = path.stat()
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise EnforceNotMet(
                f"{path} must belong to this user alone; delete it, or set {SECRET}"
            )
        return path.read_bytes()
    except OSError as error:
        raise EnforceNotMet(f"no secret can be kept in {path} ({error}): set {SECRET}") from error


def _write(path: Path) -> None:
    """Make the file at once and whole: several processes may be the first."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"secret-{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_hex(32).encode())
        os.link(draft, path)
    except FileExistsError:
        pass  # another process was first: its secret counts
    finally:
        draft.unlink()
