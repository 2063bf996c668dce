"""The engine below fluid: it turns programs into Dask tasks and runs them."""
