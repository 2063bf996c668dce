"""Rows, arrays, tables and sequences that outlive a run: clusters keep what threads keep."""

import pytest

from tests.distributed.kept import PROGRAMS

both_collectives = pytest.mark.parametrize("collectives", ["tasks", "gang"])
every_program = pytest.mark.parametrize("name", PROGRAMS)

WITH_OWN_VALUES = [
    *("table_of_rows", "gradient_of_a_table", "array_of_parts", "array_that_grows"),
    *("rank_tables", "fed_sequences"),
]


@pytest.fixture(scope="module")
def on_threads():
    """What threads make of a program, in AllReduce mode."""
    known = {}

    def find(name, devices):
        if (name, devices) not in known:
            known[name, devices] = PROGRAMS[name]().run(devices, scheduler="threads")
        return known[name, devices]

    return find


@both_collectives
@every_program
def test_clusters_keep_what_threads_keep(pair, on_threads, name, collectives):
    found = PROGRAMS[name]().run(2, scheduler=pair, collectives=collectives)
    assert found == on_threads(name, 2)


@both_collectives
@pytest.mark.parametrize("name", WITH_OWN_VALUES)
def test_it_survives_workers_that_are_lost(mortals, on_threads, name, collectives):
    faults = {
        2: lambda: mortals.lose(mortals.addresses()[1]),
        3: lambda: mortals.wait_for(2),
    }
    options = {"scheduler": mortals.client, "collectives": collectives}
    assert PROGRAMS[name]().run(3, faults, **options) == on_threads(name, 3)
