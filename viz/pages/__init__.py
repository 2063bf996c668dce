"""Charts, pages and what a view is: the ground that all pictures stand on."""
