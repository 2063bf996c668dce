"""Names of tasks that are computed again."""

from dask._task_spec import Task
from distributed.shuffle._core import P2PBarrierTask

from dpexec.engine.dask.renaming import new_names


def test_shuffles_and_what_they_read_keep_their_names():
    def same(*values):
        return values[0]

    tasks = [Task("read", same, 1), Task("aside", same, 2)]
    tasks += [Task(("send", 0), same, tasks[0].ref())]
    tasks += [P2PBarrierTask("barrier", same, tasks[2].ref(), spec=None)]
    tasks += [Task(("take", 0), same, tasks[3].ref())]
    tasks += [Task(("block", 0), same, tasks[4].ref(), tasks[1].ref())]
    names = new_names({task.key: task for task in tasks})
    assert set(names) == {"aside", ("block", 0)}
    assert names["aside"] != "aside" and names["block", 0][1:] == (0,)
