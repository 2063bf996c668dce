"""What recorded steps say: schedules, waits, critical paths, traffic, and other machines."""
