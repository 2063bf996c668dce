"""A decoder that generates words by beam search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from dpexec import layers
from dpexec.contrib.decoder.state_cell import InitState, StateCell
from dpexec.contrib.decoder.training_decoder import TrainingDecoder
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.undo import whole_block
from dpexec.engine.ir.variable import Variable
from dpexec.layers.build import block_around
from dpexec.unique_name import generate

__all__ = ["BeamSearchDecoder", "InitState", "StateCell", "TrainingDecoder"]


class BeamSearchDecoder:
    """Generates the most probable sequences, word by word, with the states of a cell.

    Args:
        state_cell: the states. New states must have the sequences of the previous states: with
            ``fc``, pass the state as its first input.
        init_ids: the first words, int64 ``(sequences, 1)``, sequences of two levels.
        init_scores: scores of the first words, in the same form.
        target_dict_dim: number of words.
        word_dim: width of the embedding.
        input_var_dict: further inputs of the cell, with a row for each sequence.
        topk_size: number of words that a beam considers per step.
        sparse_emb: whether the embedding has sparse gradients.
        max_len: largest number of words to generate.
        beam_size: number of beams.
        end_id: the word that ends a sequence.
        name: ignored; accepted for compatibility.

    Calling the object after :meth:`decode`, or after a custom :meth:`block`, returns words and
    scores.

    Source: ``fluid.contrib.decoder.BeamSearchDecoder``, which always uses 1 as ``end_id`` in the
    search.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.contrib.decoder import BeamSearchDecoder, InitState, StateCell
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     context = fluid.data("context", [None, 8])
        ...     words = fluid.data("words", [None, 1], "int64", lod_level=2)
        ...     scores = fluid.data("scores", [None, 1], lod_level=2)
        ...     h = InitState(context, need_reorder=True)
        ...     cell = StateCell({"x": None}, {"h": h}, out_state="h")
        ...     @cell.state_updater
        ...     def update(cell):
        ...         both = [cell.get_state("h"), cell.get_input("x")]
        ...         cell.set_state("h", fluid.layers.fc(both, 8, act="tanh"))
        ...     decoder = BeamSearchDecoder(cell, words, scores, 10, 4, topk_size=5, beam_size=2)
        ...     decoder.decode()
        ...     found, found_scores = decoder()  # sequences of two levels, when the program runs
    """

    def __init__(
        self,
        state_cell: StateCell,
        init_ids: Variable,
        init_scores: Variable,
        target_dict_dim: int,
        word_dim: int,
        input_var_dict: Mapping[str, Variable] = MappingProxyType({}),
        topk_size: int = 50,
        sparse_emb: bool = True,
        max_len: int = 100,
        beam_size: int = 1,
        end_id: int = 1,
        name: str | None = None,
    ) -> None:
        self._counter = layers.zeros(shape=[1], dtype="int64")
        self._counter.stop_gradient = True
        self._max_len = layers.fill_constant([1], "int64", max_len)
        self._running = layers.less_than(self._counter, self._max_len)
        self._loop = layers.While(self._running)
        self._cell = state_cell
        self._cell._enter(self)
        self._status = "before"
        self._first = layers.fill_constant([1], "int64", 0, force_cpu=True)
        self._arrays: dict[str, Variable] = {}
        """By the variable that a step reads of them."""
        self._written: list[tuple[Variable, Variable]] = []
        """What a step leaves, with the arrays for it."""
        self._ids_array: Variable | None = None
        self._scores_array: Variable | None = None
        self._init_ids, self._init_scores = init_ids, init_scores
        self._words, self._word_dim, self._sparse = target_dict_dim, word_dim, sparse_emb
        self._input_vars = dict(input_var_dict)
        self._topk_size, self._beam_size, self._end_id = topk_size, beam_size, end_id

    @whole_block
    def block(self) -> Iterator[None]:
        """The layers created in this ``with`` block are a step.

        Raises:
            ValueError: called a second time.
        """
        if self._status != "before":
            raise ValueError("block() can only be invoked once.")
        self._status = "inside"
        with self._loop.block():
            yield
            with layers.Switch() as switch, switch.case(self._running):
                layers.increment(self._counter)
                for value, array in self._written:
                    layers.array_write(value, self._counter, array)
                layers.less_than(self._counter, self._max_len, cond=self._running)
        self._status = "after"

    @property
    def state_cell(self) -> StateCell:
        """The states; available inside the block."""
        self._require_inside("state_cell")
        return self._cell

    def early_stop(self) -> None:
        """End the search with this step, discarding its results."""
        self._require_inside("early_stop")
        layers.fill_constant([1], "bool", 0, force_cpu=True, out=self._running)

    def read_array(self, init: Variable, is_ids: bool = False, is_scores: bool = False) -> Variable:
        """A value of the previous step, as set by :meth:`update_array`.

        Args:
            init: value in the first step.
            is_ids: whether the values are the words of the result.
            is_scores: whether the values are the scores of the result.

        Raises:
            ValueError: called outside of the block, or for both words and scores.
            TypeError: ``init`` is no Variable.
        """
        self._require_inside("read_array")
        if is_ids and is_scores:
            raise ValueError("an array cannot be that of the ids and that of the scores")
        if not isinstance(init, Variable):
            raise TypeError("The input argument `init` must be a Variable.")
        array = _new_array(block_around(), "beam_search_decoder_array", init, self._first)
        if is_ids:
            self._ids_array = array
        elif is_scores:
            self._scores_array = array
        value = layers.array_read(array, self._counter)
        self._arrays[value.name] = array
        return value

    def update_array(self, array: Variable, value: Variable) -> None:
        """Set the value for the next step.

        Args:
            array: the result of :meth:`read_array`.
            value: the new value.

        Raises:
            ValueError: called outside of the block, or ``array`` is not from :meth:`read_array`.
            TypeError: an argument is no Variable.
        """
        self._require_inside("update_array")
        for given, name in ((array, "array"), (value, "value")):
            if not isinstance(given, Variable):
                raise TypeError(f"The input argument `{name}` must be a Variable.")
        if array.name not in self._arrays:
            raise ValueError("Please invoke read_array before update_array.")
        self._written.append((value, self._arrays[array.name]))

    def decode(self) -> None:
        """Build the usual step: embedding, cell, scores of all words, the best beams.

        For a different step, override this method or use :meth:`block`.
        """
        with self.block():
            ids = self.read_array(self._init_ids, is_ids=True)
            scores = self.read_array(self._init_scores, is_scores=True)
            size = [self._words, self._word_dim]
            words = layers.embedding(ids, size, is_sparse=self._sparse)
            rows, expanded = self._inputs_of_beams(scores)
            for name in self._cell.state_names:
                before = self._cell.get_state(name)
                self._cell.set_state(name, layers.sequence_expand(before, scores))
            self._cell.compute_state(dict.fromkeys(self._cell.input_names, words) | expanded)
            chosen, chosen_scores = self._best(ids, scores)
            with layers.Switch() as switch:
                with switch.case(layers.is_empty(chosen)):
                    self.early_stop()
                with switch.default():
                    self._cell.update_states()
                    self.update_array(ids, chosen)
                    self.update_array(scores, chosen_scores)
                    for name, read in rows.items():
                        self.update_array(read, expanded[name])

    def _inputs_of_beams(self, scores: Variable) -> tuple[dict[str, Variable], dict[str, Variable]]:
        """Further inputs from the previous step, with a row for every beam."""
        unknown = [name for name in self._input_vars if name not in self._cell.input_names]
        if unknown:
            raise ValueError(f"Variable {unknown[0]} not found in StateCell!")
        rows = {name: self.read_array(var) for name, var in self._input_vars.items()}
        return rows, {name: layers.sequence_expand(row, scores) for name, row in rows.items()}

    def _best(self, ids: Variable, scores: Variable) -> tuple[Variable, ...]:
        """The words and scores with which the beams continue."""
        state = layers.lod_reset(self._cell.out_state(), scores)
        probabilities = layers.fc(state, self._words, act="softmax")
        top, indices = layers.topk(probabilities, self._topk_size)
        flat = layers.reshape(scores, [-1])
        total = layers.elementwise_add(layers.log(top), flat, axis=0)
        return layers.beam_search(ids, scores, indices, total, self._beam_size, self._end_id)

    def __call__(self) -> tuple[Variable, Variable]:
        """The generated words and their scores: sequences of two levels.

        Raises:
            ValueError: the block is not complete, or it reads no words or no scores.
        """
        if self._status != "after":
            raise ValueError(
                "Output of BeamSearchDecoder object can only be visited outside the block."
            )
        if self._ids_array is None or self._scores_array is None:
            raise ValueError("the block must call read_array with is_ids, and with is_scores")
        return layers.beam_search_decode(
            self._ids_array, self._scores_array, self._beam_size, self._end_id
        )

    def _hold(self, init: InitState) -> _ArrayState:
        return _ArrayState(block_around(), init)

    def _require_inside(self, method: str) -> None:
        if self._status != "inside":
            raise ValueError(
                f"{method} should be invoked inside block of BeamSearchDecoder object."
            )


class _ArrayState:
    """A state stored as the last entry of an array."""

    def __init__(self, block: Block, init: InitState) -> None:
        self._counter = block.create_var(
            name=generate("array_state_counter"), shape=[1], dtype="int64", stop_gradient=True
        )
        attrs = {"shape": [1], "dtype": VarType.INT64, "value": 0.0, "force_cpu": True}
        block.append_op("fill_constant", {}, {"Out": [self._counter]}, attrs)
        self._array = _new_array(block, "array_state_array", init.value, self._counter)

    def get_state(self) -> Variable:
        """The value from the previous step."""
        return layers.array_read(self._array, self._counter)

    def update_state(self, state: Variable) -> None:
        """Set the value for the next step."""
        layers.increment(self._counter)
        layers.array_write(state, self._counter, self._array)


def _new_array(block: Block, name: str, first: Variable, index: Variable) -> Variable:
    """An array with one entry.

    Args:
        block: block for the operator that writes the entry.
        name: prefix of its name.
        first: the entry.
        index: index of the entry.
    """
    array = block.create_var(
        name=generate(name), type=VarType.LOD_TENSOR_ARRAY, dtype=first.dtype, shape=first.shape
    )
    block.append_op("write_to_array", {"X": [first], "I": [index]}, {"Out": [array]})
    return array
