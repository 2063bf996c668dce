"""``paddle.version``: the version of Paddle whose behaviour dpexec follows."""

__all__ = ["full_version", "major", "minor", "mkl", "patch", "rc", "show", "with_mkl"]

full_version = "1.8.5"
major, minor, patch = full_version.split(".")
rc = "0"
with_mkl = "OFF"


def show() -> None:
    """Print the version."""
    print("full_version:", full_version)


def mkl() -> str:
    """Whether products come from MKL, "ON" or "OFF": they come from oneDNN or NumPy's BLAS."""
    return with_mkl
