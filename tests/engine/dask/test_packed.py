"""Compressed Dask graphs: equal parts are sent once, and arrays are not copied."""

import pickle

import numpy as np
from dask._task_spec import Task

from dpexec.engine.dask.packed import Packed


def test_what_is_alike_travels_once():
    tasks = {
        ("step", number): Task(("step", number), max, number, "of a job") for number in range(100)
    }
    packed = Packed(tasks)
    data = pickle.dumps(packed)
    assert len(data) < len(pickle.dumps(tasks)) / 4
    found = pickle.loads(data)
    assert isinstance(found, Packed) and found.keys() == tasks.keys()
    assert found["step", 7].args == (7, "of a job")


def test_numbers_of_arrays_are_not_copied():
    array, buffers = np.arange(1000.0), []
    data = pickle.dumps(Packed(x=array), protocol=5, buffer_callback=buffers.append)
    assert len(data) < 1000 and len(buffers) == 1
    found = pickle.loads(data, buffers=buffers)
    assert np.shares_memory(found["x"], array)


def test_it_is_a_function_of_its_keys():
    assert Packed(a=1)("a") == 1
