"""What runs on the values of a device: bound operators, blocks, and regions of machine code."""
