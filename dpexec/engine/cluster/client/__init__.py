"""The client's side of a cluster: the jobs of a step, the homes of replicas, lost workers."""
