"""Diagrams of programs and graphs: boxes, their order, layout and drawing."""
