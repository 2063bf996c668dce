"""What readers are made of: batches that are read ahead, in threads and processes, from files.

The names that users know are elsewhere: :mod:`dpexec.reader`, :mod:`dpexec.dataset`,
:mod:`dpexec.io`.
"""
