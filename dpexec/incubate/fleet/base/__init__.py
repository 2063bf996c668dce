"""What both kinds of fleet have in common: roles, and what a process asks about its own."""
