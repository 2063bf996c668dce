"""From the graph to a plan: tasks, their steps and collectives, and what can be known of shapes."""
