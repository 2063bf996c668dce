import pytest

import dpexec as fluid


@pytest.fixture(autouse=True)
def fresh_programs():
    """Every test builds into programs of its own, with names that start over."""
    with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
        yield
