"""Sends values to workers and a number back, without a framework: a lower bound of a step's cost.

Modes: ``tasks`` (submit and gather) and ``actors`` of dask, ``ray actors``, and ``ray graph``
(Ray's compiled graphs: channels that stay).
"""

from __future__ import annotations

import os
import platform

import harness
import workloads

request = harness.Request()


class Mean:
    """Lives on a worker."""

    def mean(self, values):
        """The mean of an array."""
        return float(values.mean())


def parts(batch):
    """The rows of every worker."""
    return [batch["x"][i : i + 1] for i in range(request.replicas)]


def joined(means):
    """The mean of all rows."""
    return sum(means) / len(means)


def with_dask():
    """What takes a batch, with tasks or actors of dask, and the package's version."""
    import distributed
    import spread

    client = spread.cluster(request.replicas)
    workers = list(client.scheduler_info(n_workers=-1)["workers"])
    if request.mode == "tasks":

        def step(batch):
            made = [
                client.submit(Mean.mean, None, rows, workers=[worker], pure=False)
                for rows, worker in zip(parts(batch), workers, strict=True)
            ]
            return joined(client.gather(made))

        return step, distributed.__version__
    actors = [client.submit(Mean, actor=True, workers=[w], pure=False).result() for w in workers]

    def step(batch):
        made = [actor.mean(rows) for actor, rows in zip(actors, parts(batch), strict=True)]
        return joined([one.result() for one in made])

    return step, distributed.__version__


def with_ray():
    """What takes a batch, with actors of Ray, and the package's version."""
    import ray

    ray.init(num_cpus=request.replicas, include_dashboard=False, log_to_driver=False)
    actors = [ray.remote(Mean).remote() for _ in range(request.replicas)]
    if request.mode == "ray actors":

        def step(batch):
            made = [
                actor.mean.remote(rows) for actor, rows in zip(actors, parts(batch), strict=True)
            ]
            return joined(ray.get(made))

        return step, ray.__version__
    from ray.dag import InputNode, MultiOutputNode

    with InputNode() as given:
        nodes = [actor.mean.bind(given[i]) for i, actor in enumerate(actors)]
        graph = MultiOutputNode(nodes).experimental_compile()

    def step(batch):
        return joined(ray.get(graph.execute(*parts(batch))))

    return step, ray.__version__


def main():
    step, version = with_ray() if request.mode.startswith("ray") else with_dask()
    package = request.mode.partition(" ")[0] if request.mode.startswith("ray") else "distributed"
    versions = {"python": platform.python_version(), package: version}
    harness.serve(
        request, step, workloads.batches(request.spec), about=lambda: {"versions": versions}
    )


if __name__ == "__main__":
    main()
    os._exit(0)  # nobody waits for the processes of a cluster: they end with this one
