"""What workers of a cluster do, and the state that they hold."""
