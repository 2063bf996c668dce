"""``data_generator``: pipe commands written in Python."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpexec.engine.core.dtypes import VarType
from dpexec.incubate import data_generator
from dpexec.reading.multislot import Slot, parse


class Words(data_generator.MultiSlotDataGenerator):
    """Makes two samples of a line, and none of an empty one."""

    def generate_sample(self, line):
        def samples():
            words = [int(word) for word in (line or "4 5").split()]
            for label in (0, 1) if words else ():
                yield [("words", words), ("label", [label])]
            yield None

        return samples


class Padded(Words):
    """Makes the samples of a batch as long as the longest."""

    def generate_batch(self, samples):
        longest = max(len(sample[0][1]) for sample in samples)

        def padded():
            for (name, words), label in samples:
                yield (name, words + [0] * (longest - len(words))), label

        return padded


class Strings(data_generator.MultiSlotStringDataGenerator):
    """Writes words as they are."""

    def generate_sample(self, line):
        return lambda: [(("words", line.split()), ("label", ["1"]))]


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        (Words, "2 1 2 1 0\n2 1 2 1 1\n1 3 1 0\n1 3 1 1\n"),
        (Padded, "2 1 2 1 0\n2 1 2 1 1\n2 3 0 1 0\n1 3 1 1\n"),
        (Strings, "2 1 2 1 1\n0 1 1\n1 3 1 1\n"),
    ],
)
def test_lines_become_samples(monkeypatch, capsys, kind, written):
    monkeypatch.setattr("sys.stdin", io.StringIO("1 2\n\n3\n"))
    generator = kind()
    generator.set_batch(3)
    generator.run_from_stdin()
    assert capsys.readouterr().out == written


def test_samples_without_input(capsys):
    Words().run_from_memory()
    assert capsys.readouterr().out == "2 4 5 1 0\n2 4 5 1 1\n"


@given(
    ids=st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5),
    weights=st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=5),
)
def test_data_sets_read_what_generators_write(ids, weights):
    slots = [
        Slot("ids", VarType.INT64, (-1, 1), dense=False),
        Slot("weights", VarType.FP32, (-1, 1), dense=False),
    ]
    line = data_generator.MultiSlotDataGenerator()._gen_str([("ids", ids), ("weights", weights)])
    assert [values.tolist() for values in parse(line, slots)] == [ids, weights]


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ("words", "must be in list or tuple type"),
        ([(3, [1])], "must be in str type"),
        ([("words", (1,))], "must be in list type"),
        ([("words", [])], "can not be empty"),
        ([("words", ["1"])], "must be in int or float"),
        ([("words", [1]), ("label", [1])], "field set of two given line are inconsistent"),
        ([("label", [1])], "not match: require<words>, get<label>"),
    ],
)
def test_wrong_samples_are_refused(sample, message):
    generator = data_generator.MultiSlotDataGenerator()
    generator._gen_str([("words", [1])])
    with pytest.raises(ValueError, match=message):
        generator._gen_str(sample)


def test_generators_must_be_written():
    with pytest.raises(NotImplementedError, match="rewrite this function"):
        data_generator.DataGenerator().run_from_memory()
