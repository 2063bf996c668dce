"""Arguments of calls: converted as by Paddle, and the wrong one named when a call fails."""
