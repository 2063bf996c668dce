"""``paddle.version``: the version of Paddle that dpexec implements."""

__all__ = ["full_version", "major", "minor", "mkl", "patch", "rc", "show", "with_mkl"]

full_version = "1.8.5"
major, minor, patch = full_version.split(".")
rc = "0"
with_mkl = "OFF"


def show() -> None:
    """Print the version and its parts.

    Example:
        >>> from dpexec.paddle import version
        >>> version.show()
        full_version: 1.8.5
        major: 1
        minor: 8
        patch: 5
        rc: 0
    """
    parts = {"full_version": full_version, "major": major, "minor": minor, "patch": patch, "rc": rc}
    for name, value in parts.items():
        print(f"{name}: {value}")


def mkl() -> str:
    """Whether MKL computes matrix products, "ON" or "OFF"; here oneDNN or NumPy's BLAS does.

    Returns:
        ``"OFF"``.

    Example:
        >>> from dpexec.paddle import version
        >>> version.mkl() in ("ON", "OFF")
        True
    """
    return with_mkl
