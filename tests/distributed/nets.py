"""The nets of the tests on clusters: dense layers, images, and words with sparse gradients."""

import numpy as np

import dpexec as fluid
from tests.engine.run.nets import Net, batches, classifier, sequence_batches, sequences


def images() -> Net:
    """A convolution with batch norm, pooling and a classifier."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 3, 8, 8], "float32")
        y = fluid.data("y", [None, 1], "int64")
        hidden = fluid.layers.conv2d(x, 8, 3, padding=1, bias_attr=False)
        hidden = fluid.layers.batch_norm(hidden, act="relu")
        hidden = fluid.layers.pool2d(hidden, 2, pool_stride=2)
        prediction = fluid.layers.fc(hidden, 3, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, y))
        test = main.clone(for_test=True)
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return Net(main, startup, loss, test, prediction)


def image_batches(steps):
    """Batches whose rows do not divide evenly."""
    rng = np.random.RandomState(4)
    return [
        {
            "x": rng.randn(11, 3, 8, 8).astype("float32"),
            "y": rng.randint(0, 3, (11, 1)).astype("int64"),
        }
        for _ in range(steps)
    ]


def word2vec(vocabulary: int = 40) -> Net:
    """The next word after three: one sparse table for all of them, updated by Adam."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        context = [fluid.data(name, [None, 1], "int64") for name in ("a", "b", "c")]
        table = fluid.ParamAttr(name="table")
        embedded = [
            fluid.layers.embedding(word, [vocabulary, 8], is_sparse=True, param_attr=table)
            for word in context
        ]
        hidden = fluid.layers.fc(fluid.layers.concat(embedded, axis=1), 16, act="sigmoid")
        prediction = fluid.layers.fc(hidden, vocabulary, act="softmax")
        following = fluid.data("y", [None, 1], "int64")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, following))
        test = main.clone(for_test=True)
        fluid.optimizer.Adam(0.02, lazy_mode=True).minimize(loss)
    return Net(main, startup, loss, test, prediction)


def word2vec_batches(steps, vocabulary=40):
    """Batches with words that come several times."""
    rng = np.random.RandomState(6)
    return [
        {name: rng.randint(0, vocabulary, (13, 1)).astype("int64") for name in ("a", "b", "c", "y")}
        for _ in range(steps)
    ]


NETS = {
    "mlp": lambda steps=3: (  # 0.5 MB: its gradients are divided, those of the small nets are not
        classifier(fluid.optimizer.Adam(0.01), sizes=(8, 300, 400, 3), dropout=0.2),
        batches(steps, rows=11),
    ),
    "images": lambda steps=3: (images(), image_batches(steps)),
    "sequences": lambda steps=3: (sequences(), sequence_batches(range(9, 9 + steps))),
    "word2vec": lambda steps=3: (word2vec(), word2vec_batches(steps)),
}
