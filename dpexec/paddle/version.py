"""``paddle.version``: the version of Paddle that dpexec implements."""

__all__ = ["full_version", "major", "minor", "mkl", "patch", "rc", "show", "with_mkl"]

full_version = "1.8.5"
major, minor, patch = full_version.split(".")
rc = "0"
with_mkl = "OFF"


def show() -> None:
    """Print the version.

    Example:
        >>> from dpexec.paddle import version
        >>> version.show()
        full_version: 1.8.5
    """
    print("full_version:", full_version)


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
