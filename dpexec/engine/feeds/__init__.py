"""From what users feed, and their loaders give, to arrays on every device."""
