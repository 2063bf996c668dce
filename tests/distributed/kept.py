"""Programs that keep more than tensors in the scope, and its content after every step."""

import numpy as np

import dpexec as fluid
from dpexec import layers
from dpexec.core import VarDesc
from dpexec.engine.core.variable_values import flat, with_sequences
from dpexec.layers.control_flow import lod_rank_table, lod_tensor_to_array
from tests.distributed.faults import disturbed
from tests.engine.run.nets import AllReduce, strategies

KINDS = VarDesc.VarType
STEPS = 4


class Kept:
    """A program, with what a user puts into the scope and feeds before every step.

    Args:
        build: adds operators to the default program, and returns what is fetched.
        put: is called with scope and step; None: nothing is put there.
        feed: makes the feed of a step.
        loss: name of the loss, if there is one.
    """

    def __init__(self, build, put=None, feed=lambda step: {}, loss=None):
        self.main, self.startup, self.put, self.feed = fluid.Program(), fluid.Program(), put, feed
        self.loss = loss
        self.main.random_seed = self.startup.random_seed = 5
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            self.fetch = build()

    def compiled(self, devices, mode=AllReduce, **options):
        build, execution = strategies(mode, **options)
        program = fluid.CompiledProgram(self.main)
        places = fluid.cpu_places(devices)
        return program.with_data_parallel(self.loss, build, execution, places=places)

    def start(self):
        if self.startup.global_block().ops:
            fluid.Executor().run(self.startup)

    def train(self, program, steps):
        """What is fetched, and lies in the scope in force, after every step."""
        scope, exe, found = fluid.global_scope(), fluid.Executor(), []
        for step in steps:
            if self.put is not None:
                self.put(scope, step)
            options = {"return_numpy": False, "return_merged": False}
            fetched = exe.run(program, self.feed(step), self.fetch, **options)
            found.append((shown(fetched), self.state(scope)))
        return found

    def run(self, devices, faults=None, **options):
        """What some steps give, in a new scope."""
        with fluid.scope_guard(fluid.Scope()):
            self.start()
            steps = disturbed(range(STEPS), faults or {})
            return self.train(self.compiled(devices, **options), steps)

    def state(self, scope):
        """What the scope holds of all persistable variables, as plain values."""
        kept = sorted(v.name for v in self.main.list_vars() if v.persistable)
        found = {name: with_sequences(scope.find_var(name)) for name in kept}
        return {name: plain(value) for name, value in found.items() if value is not None}


def plain(value):
    kind, arrays = flat(value)
    return kind, [(array.dtype.str, array.shape, array.tobytes()) for array in arrays]


def shown(value):
    """Fetches as plain values."""
    if isinstance(value, list):
        return [shown(each) for each in value]
    if isinstance(value, fluid.core.SelectedRows):
        return plain(value)
    lod = value.lod()
    return lod, np.array(value).tobytes()


def declared(name, kind=KINDS.LOD_TENSOR, shape=(6, 2), dtype="float32", lod_level=0):
    block = fluid.default_main_program().global_block()
    return block.create_var(
        name=name, shape=shape, dtype=dtype, type=kind, persistable=True, lod_level=lod_level
    )


def numbers(step, *shape):
    return np.random.default_rng(step).normal(size=shape).astype("float32")


def put_tensor(scope, name, value, lengths=None):
    tensor = scope.var(name).get_tensor()
    tensor.set(np.asarray(value), fluid.CPUPlace())
    tensor.set_recursive_sequence_lengths([lengths] if lengths else [])


def put_rows(scope, name, rows, values, height=6):
    found = scope.var(name).get_selected_rows()
    found.set_rows(rows)
    found.set_height(height)
    found.get_tensor().set(values, fluid.CPUPlace())


def update(type, **names):
    block = fluid.default_main_program().global_block()
    variables = {slot: block.var(name) for slot, name in names.items()}
    outputs = {f"{s}Out": v for s, v in variables.items() if s in ("Param", "Velocity")}
    attrs = {"mu": 0.9} if "Velocity" in names else {}
    with block.program._optimized_guard([variables["Param"], variables["Grad"]]):
        block.append_op(type=type, inputs=variables, outputs=outputs, attrs=attrs)


# ---- rows


def rows_of_a_user():
    """A gradient that the user writes before some steps, and that others use again."""

    def build():
        for name, shape in (("param", (6, 2)), ("velocity", (6, 2)), ("rate", (1,))):
            declared(name, shape=shape)
        declared("grad", KINDS.SELECTED_ROWS)
        out = declared("copy", KINDS.SELECTED_ROWS)
        layers.assign(fluid.default_main_program().global_block().var("grad"), out)
        update("momentum", Param="param", Grad="grad", Velocity="velocity", LearningRate="rate")
        return ["param"]

    def put(scope, step):
        if step == 0:
            put_tensor(scope, "param", numbers(9, 6, 2))
            put_tensor(scope, "velocity", numbers(8, 6, 2))
            put_tensor(scope, "rate", np.array([0.1], "float32"))
        if step in (0, 2):
            put_rows(scope, "grad", [4, 1, 4][step:], numbers(step, 3 - step, 2))

    return Kept(build, put)


def table_of_rows():
    """A parameter that is SelectedRows: every step overwrites some of them."""

    def build():
        table, grad = (declared(name, KINDS.SELECTED_ROWS) for name in ("table", "grad"))
        ids, out = layers.data("ids", [1], dtype="int64"), declared("found")
        block = fluid.default_main_program().global_block()
        block.append_op(type="lookup_table", inputs={"W": table, "Ids": ids}, outputs={"Out": out})
        declared("rate", shape=(1,))
        update("sgd", Param=table.name, Grad=grad.name, LearningRate="rate")
        return ["found"]

    def put(scope, step):
        if step == 0:
            put_rows(scope, "table", [3, 0, 5], numbers(1, 3, 2))
            put_rows(scope, "grad", [5, 3, 5], numbers(2, 3, 2))
            put_tensor(scope, "rate", np.array([0.5], "float32"))

    return Kept(build, put, lambda step: {"ids": np.array([[5], [3], [0], [5]])})


def gradient_of_a_table():
    """The gradient of an embedding, which stays after the run."""

    def build():
        ids = fluid.data("ids", [None, 1], "int64")
        found = layers.embedding(ids, [6, 2], is_sparse=True, param_attr="table")
        loss = layers.mean(layers.square(found), name="loss")
        fluid.optimizer.Adam(0.1, lazy_mode=True).minimize(loss)
        fluid.default_main_program().global_block().var("table@GRAD").persistable = True
        return [loss]

    ids = np.array([[4], [1], [4], [2], [0], [1]])
    return Kept(
        build, feed=lambda step: {"ids": np.roll(ids, step)[: 6 - step % 2]}, loss="loss.tmp_0"
    )


# ---- arrays and tables


def array_of_parts():
    """Every replica has its own rows in the array; a loop writes another one."""

    def build():
        x, number = layers.data("x", [2]), layers.zeros([1], "int64")
        array = layers.array_write(x, number)
        array.persistable = True
        layers.array_write(x * 2.0, layers.increment(number), array)
        begin, end = layers.zeros([1], "int64"), layers.fill_constant([1], "int64", 3)
        doubled = layers.array_write(layers.reduce_sum(x, keep_dim=True), begin)
        doubled.persistable = True
        holds = layers.less_than(begin, end)
        with layers.While(holds).block():
            value = layers.array_read(doubled, begin)
            layers.increment(begin)
            layers.array_write(value * 2.0, begin, doubled)
            layers.less_than(begin, end, cond=holds)
        return [layers.array_length(array), layers.array_read(doubled, end)]

    return Kept(build, feed=lambda step: {"x": numbers(step, 4 + step, 2)})


def array_that_grows():
    """Every step adds an entry to those that replicas had."""

    def build():
        step = layers.create_global_var([1], 0, "int64", persistable=True, name="step")
        x, array = layers.data("x", [2]), layers.create_array("float32")
        array.persistable = True
        layers.array_write(layers.reduce_sum(x, keep_dim=True), step, array)
        first = layers.array_read(array, layers.zeros([1], "int64"))
        length = layers.array_length(array)
        layers.increment(step)
        return [length, first]

    return Kept(build, feed=lambda step: {"x": numbers(step, 5, 2)})


def array_of_a_user():
    """Entries that the user writes, and writes again in place."""

    def build():
        array = declared("array", KINDS.LOD_TENSOR_ARRAY, shape=())
        entry = layers.array_read(array, layers.zeros([1], "int64"))
        total = layers.create_global_var([1], 0.0, "float32", persistable=True, name="total")
        layers.increment(total)
        return [entry, total, layers.array_length(array)]

    def put(scope, step):
        array = scope.var("array").get_lod_tensor_array()
        if step in (0, 3):
            array.append(fluid.LoDTensor())
            array[-1].set(numbers(step, 3, 2), fluid.CPUPlace())
        if step == 2:
            array[0].set(numbers(7, 2, 2), fluid.CPUPlace())

    return Kept(build, put)


def sequences(step, lengths):
    return fluid.create_lod_tensor(numbers(step, sum(lengths), 1), [lengths], fluid.CPUPlace())


LENGTHS = ([2, 3, 1, 2], [3, 3], [1, 5, 2, 2], [1, 2, 2, 1])


def rank_tables():
    """Tables of the sequences that are fed, and an array of their time steps."""

    def build():
        x = layers.data("x", [1], lod_level=1)
        table = lod_rank_table(x)
        array = lod_tensor_to_array(x, table)
        array.persistable = table.persistable = True
        return [layers.array_length(array)]

    return Kept(build, feed=lambda step: {"x": sequences(step, LENGTHS[step])})


# ---- sequences


def sequences_of_a_user():
    """Sequences that lie in the scope, which all replicas read."""

    def build():
        words = declared("words", shape=(-1, 1), lod_level=1)
        twice = layers.scale(words, 2.0)
        return [twice, layers.sequence_pool(twice, "sum")]

    def put(scope, step):
        if step != 2:
            lengths = LENGTHS[step]
            put_tensor(scope, "words", numbers(step, sum(lengths), 1), lengths)

    return Kept(build, put)


def fed_sequences():
    """Sequences that are fed once, and stay."""

    def build():
        words = declared("words", shape=(-1, 1), lod_level=1)
        twice = layers.scale(words, 2.0)
        return [twice, layers.sequence_pool(twice, "sum")]

    def feed(step):
        return {} if step % 2 else {"words": sequences(step, LENGTHS[step])}

    return Kept(build, feed=feed)


def computed_sequences():
    """Every step adds the sequences that it is fed to those that it kept of the one before."""

    def build():
        words = declared("words", shape=(-1, 1), lod_level=1)
        before = layers.sequence_pool(words, "sum")
        fed = fluid.data("text", [None, 1], lod_level=1)
        layers.assign(layers.scale(fed, 3.0), words)
        return [before]

    def put(scope, step):
        if step == 0:
            put_tensor(scope, "words", numbers(9, 4, 1), [1, 3])

    return Kept(build, put, lambda step: {"text": sequences(step, LENGTHS[step])})


PROGRAMS = {
    made.__name__: made
    for made in (
        rows_of_a_user,
        table_of_rows,
        gradient_of_a_table,
        array_of_parts,
        array_that_grows,
        array_of_a_user,
        rank_tables,
        sequences_of_a_user,
        fed_sequences,
        computed_sequences,
    )
}
