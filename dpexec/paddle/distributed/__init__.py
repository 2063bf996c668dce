"""``paddle.distributed``: starts the processes of a job.

``python -m dpexec.paddle.distributed.launch train.py`` takes the arguments of ``python -m
paddle.distributed.launch``.
"""
