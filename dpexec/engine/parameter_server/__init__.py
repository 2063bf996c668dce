"""Trainers and parameter servers, which run the programs of ``DistributeTranspiler``."""
