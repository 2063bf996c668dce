"""``paddle.distributed``: starts the processes of a job.

``python -m dpexec.paddle.distributed.launch train.py`` takes what ``python -m
paddle.distributed.launch`` takes.
"""
