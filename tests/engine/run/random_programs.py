"""Programs that are drawn: what they may consist of comes from the operators' declarations."""

from __future__ import annotations

import functools

import numpy as np

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import SampleRng, Spec
from dpexec.layer_helper import LayerHelper
from tests.engine.ops.calls import SampleCall
from tests.engine.run.nets import Net

layers = fluid.layers
WIDTHS = (1, 2, 4, 6)
VOCABULARY = 11
STEPS = {"ceil", "floor", "round", "sign"}  # a rounded number may lie on the other side
# None makes a step of a gradient that is 0 but for rounding.
OPTIMIZERS = {
    "SGD": lambda: fluid.optimizer.SGD(0.05),
    "Momentum": lambda: fluid.optimizer.Momentum(0.05, 0.9, use_nesterov=True),
    "Adam": lambda: fluid.optimizer.Adam(0.01, epsilon=1e-3),
    "Adagrad": lambda: fluid.optimizer.Adagrad(0.05, initial_accumulator_value=0.1),
    "RMSProp": lambda: fluid.optimizer.RMSProp(0.01, epsilon=1e-3),
    "Adamax": lambda: fluid.optimizer.Adamax(0.01, epsilon=1e-3),
    "DecayedAdagrad": lambda: fluid.optimizer.DecayedAdagrad(0.02, epsilon=1e-3),
    "LarsMomentum": lambda: fluid.optimizer.LarsMomentum(0.05, 0.9),
    "clipped": lambda: fluid.optimizer.SGD(
        0.05, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.5)
    ),
    "clipped each": lambda: fluid.optimizer.Adam(
        0.01, epsilon=1e-3, grad_clip=fluid.clip.GradientClipByNorm(0.2)
    ),
    "cut off": lambda: fluid.optimizer.Momentum(
        0.05, 0.9, grad_clip=fluid.clip.GradientClipByValue(0.05)
    ),
    "decayed": lambda: fluid.optimizer.Momentum(
        0.05, 0.9, regularization=fluid.regularizer.L2Decay(1e-2)
    ),
    "decayed and clipped": lambda: fluid.optimizer.Adam(
        0.01, epsilon=1e-3, regularization=fluid.regularizer.L2Decay(1e-2),
        grad_clip=fluid.clip.GradientClipByGlobalNorm(0.5),
    ),
    "Adadelta": lambda: fluid.optimizer.Adadelta(0.1, epsilon=1e-3),
    "Ftrl": lambda: fluid.optimizer.Ftrl(0.05, l1=1e-3, l2=0.5),  # without l2, steps of any size
    "scheduled": lambda: fluid.optimizer.SGD(layers.exponential_decay(0.1, 2, 0.5)),
}  # fmt: skip
SPARSE = (
    "SGD", "Momentum", "Adam", "Adagrad", "RMSProp", "clipped", "clipped each", "decayed",
    "scheduled",
)  # fmt: skip
BINARY = ("add", "sub", "mul", "max", "min")


@functools.cache
def of_rows():
    """Operators of one input that treat every row by itself: type, attributes, whether X is > 0."""
    found = []
    for type, definition in opdef.registered().items():
        takes = [slot.name for slot in definition.inputs if not slot.optional]
        if takes != ["X"] or definition.inputs[0].many or type in STEPS or "_grad" in type:
            continue
        usual = definition.samples and definition.infer and definition.make_grad
        if not usual or definition.is_random or definition.by_executor or definition.inplace:
            continue
        if definition.kernel_arguments & {"body", "names", "calls"} or definition.outputs[0].many:
            continue
        for sample in definition.samples(SampleRng()):
            x = sample.inputs.get("X")
            if isinstance(x, np.ndarray) and x.dtype.kind == "f" and set(sample.inputs) == {"X"}:
                positive = _treats_rows(definition, sample)
                if positive is not None and (type, sample.attrs, positive) not in found:
                    found.append((type, dict(sample.attrs), positive))
    return found


def _treats_rows(definition, sample):
    """False if every row of numbers is treated by itself, True if only of positive ones."""
    try:
        out = definition.infer_specs({"X": [Spec((-1, 6), "float32")]}, sample.attrs)
        first = next(iter(out[definition.outputs[0].name]))
    except (EnforceNotMet, TypeError, IndexError):
        return None
    if first is None or len(first.shape) != 2 or first.shape[0] != -1 or first.shape[1] < 1:
        return None
    for positive in (False, True):
        x = np.random.RandomState(0).uniform(0.2 if positive else -2, 2, (5, 6)).astype("float32")
        parts = (slice(0, 5), slice(0, 3), slice(3, 4))
        try:
            whole, *some = (_result(definition, sample, x[part]) for part in parts)
        except (ValueError, IndexError, EnforceNotMet, KeyError):
            return None
        if whole.dtype == np.float32 and all(np.isfinite(made).all() for made in (whole, *some)):
            same = map(np.array_equal, some, (whole[part] for part in parts[1:]))
            return positive if all(same) else None
    return None


def _result(definition, sample, x):
    call = SampleCall(definition.type, type(sample)({"X": x}, sample.attrs), np.float32)
    return call.forward()[call.outputs[definition.outputs[0].name][0]]


class Drawn:
    """A program that is drawn operator by operator.

    Args:
        choose: takes a list and gives one of its elements.
    """

    def __init__(self, choose):
        self.choose = choose
        self.dense, self.sequences, self.kept = [], [], []
        self.optimizer = choose(sorted(OPTIMIZERS))
        self.sparse = [False, True] if self.optimizer in SPARSE else [False]
        self.whole = True  # whether devices together compute what one would

    def build(self):
        main, startup = fluid.Program(), fluid.Program()
        main.random_seed = startup.random_seed = 7
        with fluid.unique_name.guard(), fluid.program_guard(main, startup):
            self.dense = [fluid.data("x", [None, 6]), fluid.data("z", [None, 4])]
            self.ids = fluid.data("ids", [None, 1], "int64")
            self.words = fluid.data("words", [None, 1], "int64", lod_level=1)
            count = self.choose(list(range(3, 26)))
            while len(main.global_block().ops) < count:
                getattr(self, self.choose(KINDS))()
            fetched = [self.any() for _ in range(self.choose([0, 1, 3]))]
            self.fetched = [*dict.fromkeys(fetched), *self.kept]
            loss = self.loss()
            second = self.second_loss() if self.choose([False, False, True]) else None
            params = main.all_parameters()[: None if second is None else -2]
            optimizer = OPTIMIZERS[self.optimizer]()
            optimizer.minimize(loss, parameter_list=[param.name for param in params])
            if second is not None:
                own = [param.name for param in main.all_parameters()[-2:]]
                fluid.optimizer.Momentum(0.05, 0.9).minimize(second, parameter_list=own)
                self.fetched.append(second)
        return Net(main, startup, loss, None, loss)

    def second_loss(self):
        """Another loss of what is there, for an optimizer with two parameters of its own."""
        found = layers.fc(self.any(), 2, act="tanh")
        return layers.mean(layers.square(found - 0.5))

    # ---- what there is

    def any(self):
        return self.choose(self.dense)

    def keep(self, x):
        if len(x.shape) == 2:
            self.dense.append(x)

    def bounded(self, x, positive=False):
        if positive:
            return layers.scale(layers.sigmoid(x), 1.5, 0.2)
        return layers.scale(layers.tanh(x), 2.0)

    # ---- operators

    def unary(self):
        type, attrs, positive = self.choose(of_rows())
        x, helper = self.bounded(self.wide(6), positive), LayerHelper(type)
        specs = opdef.get(type).infer_specs({"X": [x.spec]}, attrs)
        outs = {
            slot: [helper.create_variable_for_type_inference("float32") for spec in [*found][:1]]
            for slot, found in specs.items()
            if next(iter(found)) is not None
        }
        helper.append_op(type, {"X": [x]}, outs, attrs)
        self.keep(outs[opdef.get(type).outputs[0].name][0])

    def wide(self, width):
        x = self.any()
        return x if x.shape[-1] == width else layers.fc(x, width)

    def binary(self):
        x = self.any()
        apply = getattr(layers, f"elementwise_{self.choose(list(BINARY))}")
        others = [y for y in self.dense if y.shape == x.shape]
        y = self.choose([*others, None])
        if y is None:
            y = layers.create_parameter([x.shape[-1]], "float32")
        self.keep(apply(self.bounded(x), y))

    def fc(self):
        act = self.choose([None, "relu", "tanh", "sigmoid", "softmax"])
        self.keep(layers.fc(self.any(), self.choose(list(WIDTHS)), act=act))

    def embedding(self):
        sparse = self.choose(self.sparse)
        found = fluid.embedding(self.ids, [VOCABULARY, self.choose(list(WIDTHS))], is_sparse=sparse)
        self.keep(layers.reshape(found, [-1, found.shape[-1]]))

    def norm(self):
        kind = self.choose(["layer_norm", "batch_norm", "l2_normalize", "dropout"])
        if kind == "batch_norm":
            self.whole = False
            self.keep(layers.batch_norm(self.wide(4)))
        elif kind == "layer_norm":
            self.keep(layers.layer_norm(self.wide(6)))
        elif kind == "dropout":
            self.keep(layers.dropout(self.any(), 0.3))
        else:
            self.keep(layers.l2_normalize(layers.scale(self.bounded(self.any()), 1.0, 3.0), 1))

    def columns(self):
        kind = self.choose(["concat", "split", "slice"])
        if kind == "concat":
            self.keep(layers.concat([self.any(), self.any()], axis=1))
        elif kind == "split":
            for part in layers.split(self.wide(6), [2, 4], dim=1):
                self.keep(part)
        else:
            self.keep(layers.slice(self.wide(6), [1], [1], [5]))

    def loop(self):
        x, rounds = self.wide(4), self.choose([1, 2, 3])
        weight = layers.create_parameter([4, 4], "float32")
        act = self.choose([layers.tanh, layers.sigmoid, layers.softsign])
        number, end = (layers.fill_constant([1], "int64", value) for value in (0, rounds))
        _, out = layers.while_loop(
            lambda i, h: layers.less_than(i, end),
            lambda i, h: [layers.increment(i), act(layers.matmul(h, weight)) + h * 0.5],
            [number, self.bounded(x)],
        )
        self.keep(out)

    def static(self):
        """Steps along an axis of known length."""
        steps = layers.transpose(layers.reshape(self.bounded(self.wide(6)), [-1, 3, 2]), [1, 0, 2])
        rnn = layers.StaticRNN()
        with rnn.step():
            x = rnn.step_input(steps)
            hidden = rnn.memory(shape=[-1, 2], batch_ref=steps, ref_batch_dim_idx=1)
            new = layers.fc([x, hidden], 2, act="tanh")
            rnn.update_memory(hidden, new)
            rnn.step_output(new)
        self.keep(layers.reshape(layers.transpose(rnn(), [1, 0, 2]), [-1, 6]))

    def counted(self):
        """A loop that writes variables around it, with a condition inside."""
        x, rounds = self.wide(4), self.choose([1, 2, 4])
        number, end, half = (layers.fill_constant([1], "int64", v) for v in (0, rounds, 1))
        state = layers.scale(self.bounded(x), 1.0)
        going = layers.less_than(number, end)
        with layers.While(going).block():
            smaller = layers.less_than(number, half)
            made = layers.cond(
                smaller, lambda: layers.tanh(state), lambda: layers.softsign(state) * 0.5
            )
            layers.assign(made + 0.1, state)
            layers.increment(number)
            layers.less_than(number, end, cond=going)
        self.keep(state)

    def images(self):
        """Rows as small images."""
        x = layers.reshape(self.bounded(self.wide(6)), [-1, 1, 2, 3])
        kind = self.choose(["conv", "pool", "transposed", "norm", "group"])
        made = {
            "conv": lambda: layers.conv2d(x, 2, 2, act="relu"),
            "pool": lambda: layers.pool2d(x, 2, self.choose(["max", "avg"])),
            "transposed": lambda: layers.conv2d_transpose(x, 1, filter_size=2),
            "norm": lambda: layers.instance_norm(layers.conv2d(x, 2, 1)),
            "group": lambda: layers.group_norm(layers.conv2d(x, 4, 1, act="tanh"), 2),
        }
        self.keep(layers.flatten(made[kind]()))

    def persistent(self):
        """A variable that lives from step to step: a counter, or the mean of a parameter so far.

        It is alike on all devices. Of others, AllReduce mode has one for each device, and Reduce
        mode one: see docs/differences.md.
        """
        x, kept = self.any(), layers.create_global_var([1], 0.0, "float32", persistable=True)
        self.kept.append(kept)
        if self.choose([True, False]):
            layers.increment(kept)
            factor = layers.scale(layers.reciprocal(kept), 1.0, 0.5)
            self.keep(layers.elementwise_mul(self.bounded(x), factor))
            return
        weight = layers.create_parameter([x.shape[-1]], "float32")
        now = layers.reduce_mean(weight)
        now.stop_gradient = True
        layers.assign(kept * 0.9 + now * 0.1, kept)
        self.keep(layers.elementwise_sub(layers.elementwise_add(x, weight), kept))

    def condition(self):
        x, yes = self.any(), self.choose([0.0, 2.0])
        smaller = layers.less_than(
            layers.fill_constant([1], "float32", yes), layers.fill_constant([1], "float32", 1.0)
        )
        first, second = self.choose([(layers.tanh, layers.sigmoid), (layers.softplus, layers.abs)])
        self.keep(layers.cond(smaller, lambda: first(x) * 0.5, lambda: second(x)))

    def sequence(self):
        if not self.sequences or self.choose([True, False, False]):
            table = [VOCABULARY, self.choose([2, 4])]
            self.sequences.append(
                layers.embedding(self.words, table, is_sparse=self.choose(self.sparse))
            )
            return
        x = self.choose(self.sequences)
        kind = self.choose([*SEQUENCES, "pool", "pool"])
        if kind == "pool":
            how = self.choose(["sum", "average", "sqrt", "max", "last", "first"])
            self.keep(layers.sequence_pool(x, how))
            return
        made = {
            "fc": lambda: layers.fc(x, 4, act="tanh"),
            "conv": lambda: layers.sequence_conv(x, 4, 3),
            "gru": lambda: layers.dynamic_gru(layers.fc(x, 6), 2),
            "lstm": lambda: layers.dynamic_lstm(layers.fc(x, 8), 8, use_peepholes=False)[0],
            "rnn": lambda: self.recurrent(x),
            "softmax": lambda: layers.sequence_softmax(layers.fc(x, 1)),
            "reverse": lambda: layers.sequence_reverse(x),
            "expand": lambda: layers.sequence_expand_as(self.wide(4), x),
            "concat": lambda: layers.sequence_concat([x, x]),
            "pad": lambda: self.padded(x),
            "unary": lambda: self.choose([layers.tanh, layers.softsign])(x),
        }
        self.sequences.append(made[kind]())

    def padded(self, x):
        """Sequences as one array and back."""
        rows, lengths = layers.sequence_pad(x, layers.assign(np.zeros(1, "float32")))
        return layers.sequence_unpad(layers.scale(rows, 0.5), lengths)

    def recurrent(self, x):
        rnn = layers.DynamicRNN()
        with rnn.block():
            word, hidden = rnn.step_input(x), rnn.memory(shape=[3])
            new = layers.fc([word, hidden], 3, act="tanh")
            rnn.update_memory(hidden, new)
            rnn.output(new)
        return rnn()

    def loss(self):
        pooled = [layers.sequence_pool(x, "average") for x in self.sequences[-2:]]
        terms = [self.term(x) for x in [*self.dense[-4:], *pooled]]
        return layers.sums(terms)

    def term(self, x):
        """A number that training makes smaller."""
        kind = self.choose(["tanh", "tanh", "entropy", "square", "huber", "sigmoid"])
        if kind == "tanh":
            return layers.mean(layers.tanh(layers.fc(x, 1)))
        if kind == "entropy":
            scores = layers.fc(x, VOCABULARY)
            return layers.mean(layers.softmax_with_cross_entropy(scores, self.ids)) * 0.1
        wanted = layers.fill_constant_batch_size_like(x, [-1, 1], "float32", 0.25)
        found = layers.fc(x, 1)
        if kind == "square":
            return layers.mean(layers.square_error_cost(layers.tanh(found), wanted))
        if kind == "huber":
            return layers.mean(layers.huber_loss(found, wanted, 0.5))
        return layers.mean(layers.sigmoid_cross_entropy_with_logits(found, wanted))


KINDS = [
    *(["unary"] * 6), "binary", "binary", "fc", "embedding", "norm", "columns", "loop",
    "condition", "sequence", "sequence", "sequence", "static", "counted", "images", "persistent",
]  # fmt: skip
SEQUENCES = (
    "fc", "conv", "gru", "lstm", "rnn", "softmax", "reverse", "expand", "concat", "pad", "unary"
)  # fmt: skip


def feeds(sizes):
    """A batch for each number of samples."""
    rng = np.random.RandomState(3)
    found = []
    for rows in sizes:
        lengths = rng.randint(1, 5, rows).tolist()
        words = rng.randint(0, VOCABULARY, (sum(lengths), 1)).astype("int64")
        found.append(
            {
                "x": rng.uniform(-2, 2, (rows, 6)).astype("float32"),
                "z": rng.uniform(-2, 2, (rows, 4)).astype("float32"),
                "ids": rng.randint(0, VOCABULARY, (rows, 1)).astype("int64"),
                "words": fluid.create_lod_tensor(words, [lengths], fluid.CPUPlace()),
            }
        )
    return found
