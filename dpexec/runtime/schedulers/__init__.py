"""Where the tasks of a plan run: dask's threads, one thread, or a dask cluster."""
