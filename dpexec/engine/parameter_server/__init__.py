"""Trainers and parameter servers: what programs of ``DistributeTranspiler`` say, done."""
