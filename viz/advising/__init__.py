"""What recorded steps show: their analysis, and advice how to shorten them."""
