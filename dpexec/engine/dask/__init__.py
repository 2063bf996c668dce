"""Dask as we use it: blocks of collections, values that workers hold, waits with a limit."""
