"""The implementation of readers: prefetching in threads and processes, and reading files.

The public names are in :mod:`dpexec.reader`, :mod:`dpexec.dataset` and :mod:`dpexec.io`.
"""
