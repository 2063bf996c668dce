"""From a graph to a plan, and from a plan to what runs batches of certain shapes."""
