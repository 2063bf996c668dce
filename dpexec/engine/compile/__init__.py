"""From a graph to a plan, and from a plan to a binding, which runs batches of certain shapes."""
