"""Which binding a batch gets, and who runs it."""
