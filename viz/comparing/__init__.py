"""Two runs side by side: causes of the difference that add up, and equal operators."""
