"""The program that layers and optimizers build."""
