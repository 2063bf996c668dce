"""The scripts here import paddle; they are run by tests, not collected."""

collect_ignore_glob = ["*.py"]
