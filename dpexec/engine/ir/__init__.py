"""The program: what the user's layer and optimizer calls build."""
