"""Where the tasks of a plan run in this process: on the threads of dask or of a crew, or on one."""
