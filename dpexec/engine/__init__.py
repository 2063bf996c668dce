"""The engine below fluid: from programs to tasks of Dask, and what runs them."""
