"""Values that are kept between runs: a cluster keeps what threads keep."""

import pytest

import dpexec as fluid
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


@pytest.mark.parametrize("name", ["rows_of_a_user", "gradient_of_a_table", "computed_sequences"])
def test_files_are_those_of_threads(pair, tmp_path, name):
    """What nobody read before is brought home for them."""
    for place, scheduler in (("threads", "threads"), ("cluster", pair)):
        kept, exe = PROGRAMS[name](), fluid.Executor()
        with fluid.scope_guard(fluid.Scope()):
            kept.start()
            program = kept.compiled(2, scheduler=scheduler)
            if kept.put is not None:
                kept.put(fluid.global_scope(), 0)
            for step in (0, 1):
                exe.run(program, kept.feed(step))
            fluid.io.save_persistables(exe, str(tmp_path / place), kept.main)
    files = {file.name: file.read_bytes() for file in (tmp_path / "threads").iterdir()}
    assert files
    assert files == {file.name: file.read_bytes() for file in (tmp_path / "cluster").iterdir()}
