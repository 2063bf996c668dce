"""What is timed, and what runs on other packages, is no test."""

collect_ignore_glob = ["*.py"]
