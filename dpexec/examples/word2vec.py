"""Word embeddings: guess a word from the four before it (Bengio et al. 2003)."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

import dpexec as fluid
from dpexec.examples.example import Data, Example, Net

CONTEXT = 4
EMBEDDING, HIDDEN = 32, 256
PAGE = 500  # words
LEAST = 10  # a word that is rarer counts as unknown


def _text() -> list[str]:
    """The words of Python's own reference, which every Python carries for ``help()``."""
    from pydoc_data.topics import topics

    text = " ".join(topics[name] for name in sorted(topics))
    return re.findall(r"[a-z]+", text.lower())


def vocabulary() -> list[str]:
    """Return the frequent words, most frequent first; the last entry stands for all others."""
    counts = Counter(_text())
    frequent = [word for word, count in counts.items() if count >= LEAST]
    return [*sorted(frequent, key=lambda word: (-counts[word], word)), "<unk>"]


def build() -> Net:
    """One sparse embedding table for all four words, a sigmoid layer, a softmax, Adam."""
    size = len(vocabulary())
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        words = [
            fluid.data(name=f"word{k}", shape=[None, 1], dtype="int64") for k in range(CONTEXT)
        ]
        following = fluid.data(name="next", shape=[None, 1], dtype="int64")
        embedded = [
            fluid.layers.embedding(
                word, size=[size, EMBEDDING], is_sparse=True, param_attr="shared_embedding"
            )
            for word in words
        ]
        hidden = fluid.layers.fc(fluid.layers.concat(embedded, axis=1), size=HIDDEN, act="sigmoid")
        guess = fluid.layers.fc(hidden, size=size, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(input=guess, label=following))
        test = main.clone(for_test=True)
        fluid.optimizer.Adam(learning_rate=0.005).minimize(loss)
    return Net(main, startup, test, loss, loss)


def load() -> Data:
    """Every window of five words of Python's language reference; every tenth page is held out."""
    numbers = {word: number for number, word in enumerate(vocabulary())}
    unknown = len(numbers) - 1
    text = np.array([numbers.get(word, unknown) for word in _text()], dtype=np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(text, CONTEXT + 1)
    arrays = {f"word{k}": windows[:, k : k + 1] for k in range(CONTEXT)}
    arrays["next"] = windows[:, CONTEXT:]
    first = np.arange(len(windows))
    page = first // PAGE
    whole = page == (first + CONTEXT) // PAGE  # no window shares a word with the other part
    held_out = page % 10 == 9
    return Data(
        train={name: array[whole & ~held_out] for name, array in arrays.items()},
        test={name: array[whole & held_out] for name, array in arrays.items()},
        source="the text of Python's language reference",
    )


EXAMPLE = Example(
    name="word2vec",
    summary="an n-gram language model with sparse embeddings",
    build=build,
    load=load,
    batch_size=256,
    epochs=5,
    metric_name="loss",
)
