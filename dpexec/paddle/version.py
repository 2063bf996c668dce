"""``paddle.version``: the version of Paddle whose behaviour dpexec follows."""

__all__ = ["full_version", "major", "minor", "patch", "rc", "show"]

full_version = "1.8.5"
major, minor, patch = full_version.split(".")
rc = "0"


def show() -> None:
    """Print the version."""
    print("full_version:", full_version)
