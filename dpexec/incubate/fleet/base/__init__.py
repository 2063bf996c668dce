"""The base of both kinds of fleet: roles, and queries about them."""
