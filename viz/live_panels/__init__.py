"""The live view of training: its panels, and the process that draws them."""
