"""The runtime: plans, schedulers and executors."""
