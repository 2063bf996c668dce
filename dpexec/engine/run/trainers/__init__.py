"""Training by several processes that run the same script."""
