"""A region of a block as an instruction of its rounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.compile.regions.region import Region
from dpexec.engine.compile.regions.region_code import SizedRegion
from dpexec.engine.compile.regions.slots import Unusual, array_like, form_of
from dpexec.engine.core.lod import Lod
from dpexec.engine.kernels.deferred import play
from dpexec.engine.kernels.located import OF_ADDRESS, address
from dpexec.engine.kernels.round_values import SLOT

__all__ = ["RoundRegion"]

_MOST = 512
"""The most sizes that are known at a time: they are searched one by one."""


class RoundRegion:
    """A region, and the sizes for which there is code.

    Args:
        region: the region.
        inputs: the slots of its inputs.
        results: the slots of its results, by name.
        keeps: names of results that are needed after their round.

    Attributes:
        words: what :mod:`dpexec.engine.kernels.rounds` reads.
    """

    def __init__(
        self,
        region: Region,
        inputs: Sequence[int],
        results: Mapping[str, int],
        keeps: Collection[str],
    ) -> None:
        self._region, self._inputs = region, list(inputs)
        self._results, self._keeps = results, keeps
        self._keys = np.zeros((8, 2 * len(inputs) + 1), np.int64)
        self._cells = np.zeros(len(results) + 1, np.int64)
        self._arguments = np.zeros(2 + len(inputs) + len(self._cells), np.int64)
        self.words = np.array([0, 0, 0, len(inputs), 0, 0, 0, *inputs], np.int64)
        self._known: list[Any] = []  # what the words have addresses of

    def place(self, slots: np.ndarray[Any, Any]) -> None:
        """Say where the slots are."""
        self._slots = slots
        inputs = address(slots) + 8 * SLOT * np.array(self._inputs, np.int64)
        cells = address(self._cells) + 8 * np.arange(len(self._cells))
        self._arguments[2:] = np.concatenate([inputs, cells]) - OF_ADDRESS
        self.words[1] = address(self._keys)
        self.words[4:7] = play.address, address(self._arguments), address(self._cells)

    def learn(self) -> None:
        """Find the code for the sizes of the inputs that are in their slots.

        Raises:
            Unusual: there is no code for them.
        """
        inputs = self._slots[self._inputs]
        if not inputs[:, 0].all():
            raise Unusual
        forms = inputs[:, (1, 3)]
        arrays = [array_like(*form) for form in forms.tolist()]
        sized = self._region.sized(arrays)
        if not isinstance(sized, SizedRegion) or not sized.plain:
            raise Unusual
        for array, dtype in zip(arrays, sized.dtypes, strict=True):
            if not isinstance(array, Lod) and array.dtype != dtype:
                raise Unusual
        entry = self._entry(sized)
        known = int(self.words[0])
        if known == _MOST:
            known, self._known = 0, []
        if known == len(self._keys):
            self._keys = np.concatenate([self._keys, np.zeros_like(self._keys)])
            self.words[1] = address(self._keys)
        self._keys[known, :-1] = forms.ravel()
        self._keys[known, -1] = address(entry)
        self._known.append((entry, sized))
        self.words[0], self.words[2] = known + 1, known

    def _entry(self, sized: SizedRegion) -> np.ndarray[Any, Any]:
        """What is known for a size: the code, its buffers, and its results."""
        results = [result for result in sized.results if result[0] in self._results]
        lasting = {number for name, number, _, _ in results if name in self._keeps}
        words = [*sized.first, len(sized.made)]
        for number, nbytes in enumerate(sized.made):
            words += nbytes, number not in lasting
        words.append(len(results))
        for name, number, shape, dtype in results:
            words += self._results[name], number, *form_of(dtype, shape)
        return np.array(words, np.int64)
