"""Which sizes of a batch differ from one batch to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.lod import LOD_SUFFIX, Lod, lod_name
from dpexec.engine.ir.sizes import Counts

__all__ = ["Extents", "find_extents"]


@dataclass(frozen=True)
class Extents:
    """Sizes that batches differ in: how many samples there are, and what sequences consist of.

    Args:
        counts: the sizes, per device.
        axes: for each array the index in ``counts`` of its first dimension; for offsets the indices
            of the numbers of sequences, coarse levels first. Arrays that are left out are taken to
            have the same shape in every batch.
    """

    counts: list[Counts]
    axes: Mapping[str, tuple[int, ...]]


def find_extents(values: Sequence[Mapping[str, Any]], samples: Sequence[int]) -> Extents:
    """The sizes that change from batch to batch.

    Variables with the same sequences share their sizes, such as the words of a sentence and the
    words to predict. Different sequences have different sizes, even if these are equal in a batch.

    Args:
        values: arrays and offsets by name, per device; empty for an idle device.
        samples: number of samples per device.
    """
    sizes = [list(samples)]  # each on all devices
    axes: dict[str, tuple[int, ...]] = {}
    known: list[tuple[list[Lod], tuple[int, ...]]] = []
    names: dict[str, None] = {}
    for found in values:
        names.update(dict.fromkeys(found))
    for name in names:
        offsets = lod_name(name)
        if offsets not in names:
            continue
        lods = [found.get(offsets, _NONE) for found in values]
        own = next((numbers for before, numbers in known if before == lods), ())
        if not own:
            own = tuple([_number(column, sizes) for column in _columns(lods)])
            known.append((lods, own))
        axes[offsets], axes[name] = own[:-1], own[-1:]
    for name in names:
        if name in axes or name.endswith(LOD_SUFFIX):
            continue
        shapes = [found[name].shape if name in found else (0,) for found in values]
        column = [shape[0] for shape in shapes if shape]
        if column in sizes:
            axes[name] = (sizes.index(column),)
    return Extents(list(zip(*sizes, strict=True)), axes)


_NONE = Lod()


def _number(column: list[int], sizes: list[list[int]]) -> int:
    """The index of a size of sequences: that of the samples, or a new one."""
    if column == sizes[0]:
        return 0
    sizes.append(column)
    return len(sizes) - 1


def _columns(lods: Sequence[Lod]) -> list[list[int]]:
    """How many sequences there are on every device, for every level; then how many rows."""
    depth = max([len(lod.levels) for lod in lods])
    counts = []
    for lod in lods:
        sequences = [len(level) - 1 for level in lod.levels]
        counts.append([*sequences, lod.rows] if sequences else [0] * (depth + 1))
    return list(map(list, zip(*counts, strict=True)))
