"""What needs the real Paddle is no test."""

collect_ignore = ["read_in_paddle.py"]
