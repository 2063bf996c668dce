"""``fluid.incubate.fleet``: roles of processes, and optimizers that divide programs between them.

:mod:`collective` is for trainers that exchange gradients themselves, :mod:`parameter_server` for
trainers and servers; each has an object ``fleet``.
"""
