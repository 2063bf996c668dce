"""Charts, pages and the base class of views: shared by all pictures."""
