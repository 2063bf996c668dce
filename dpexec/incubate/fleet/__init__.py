"""``fluid.incubate.fleet``: roles of processes, and optimizers that divide programs.

:mod:`collective` is for trainers that exchange gradients directly, :mod:`parameter_server` for
trainers with servers; each has an object ``fleet``.
"""
