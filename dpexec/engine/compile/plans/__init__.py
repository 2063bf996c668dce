"""From the graph to a plan: tasks, their steps and collectives, and shapes known before a run."""
