"""The work of a cluster's workers, and the state that they hold."""
