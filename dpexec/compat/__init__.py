"""For old programs: names and habits of old NumPy, and why some names of fluid are absent."""
