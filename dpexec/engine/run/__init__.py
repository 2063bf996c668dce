"""Steps of a plan in this process: on one thread, on many, on GPUs, with other trainers."""
