"""Diagrams of programs and graphs: boxes, their order and places, and how they are drawn."""
