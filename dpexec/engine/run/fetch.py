"""Fetches: from the devices' values to the results of ``run``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.compile.plans.check import check_merge
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.core.arrays import Entry, TensorArray
from dpexec.engine.core.copies import with_arrays
from dpexec.engine.core.errors import see
from dpexec.engine.core.lod import Lod
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.core.tensors import LoDTensor, LoDTensorArray
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.graph.lods import Sequences
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.spec import array_spec
from dpexec.engine.ir.variable import Variable

_SEQUENCES_FETCHED = (
    "Some of your fetched tensors hold LoD information. They can not be completely cast to Python "
    "ndarray. Please set the parameter 'return_numpy' as 'False' to return LoDTensor itself "
    "directly."
)

__all__ = [
    "FetchedOffsets",
    "Later",
    "as_arrays",
    "as_tensors",
    "collect",
    "fetch_names",
    "fetched_of",
    "host_copy",
    "in_sequences",
    "merge",
    "wanted",
]


def wanted(fetch_list: Any) -> tuple[list[str], list[Operator]]:
    """The names and the optimizer operators in a fetch list; it may hold results of ``minimize``.

    Items may be lists, as ``fluid.gradients`` returns them.

    Raises:
        AssertionError: neither list nor tuple, nor one Variable or name, nor None.
        TypeError: an operator that is not an optimizer's, or an item of another type.
    """
    if not isinstance(fetch_list, (list, tuple)):
        return fetch_names(fetch_list), []
    names: list[str] = []
    updates: list[Operator] = []
    for item in fetch_list:
        if isinstance(item, str):
            names.append(item)
        elif isinstance(item, Variable):
            names.append(item.name)
        else:
            _add_wanted(item, names, updates)
    return names, updates


def _add_wanted(item: Any, names: list[str], updates: list[Operator]) -> None:
    if isinstance(item, tuple) and item and isinstance(item[0], list):
        item = item[0]  # minimize returns (operators, pairs of parameter and gradient)
    for each in item if isinstance(item, (list, tuple)) else [item]:
        if not isinstance(each, Operator):
            names += fetch_names([each])
        elif each.role & roles.OPTIMIZE:
            updates.append(each)
        else:
            raise TypeError(f"operator {each.type} in fetch_list is no optimizer operator")


def fetch_names(fetch_list: Any) -> list[str]:
    """Names in a fetch list: None, one Variable or name, or a list of them.

    Raises:
        AssertionError: neither list nor tuple.
        TypeError: an item is neither Variable nor name.
    """
    if fetch_list is None:
        return []
    if isinstance(fetch_list, (str, Variable)):
        fetch_list = [fetch_list]
    if not isinstance(fetch_list, (list, tuple)):
        raise AssertionError(
            f"fetch_list must be a list or a tuple, but received {type(fetch_list)}"
        )
    names = []
    for item in fetch_list:
        if not isinstance(item, (str, Variable)):
            raise TypeError(
                f"fetch_list items are Variables or names of Variables, but received {type(item)}"
            )
        names.append(item if isinstance(item, str) else item.name)
    return names


def collect(
    envs: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    sources: Sequence[Sequence[int]],
    merged: bool,
) -> list[Any]:
    """Copy fetched values to the host.

    Args:
        envs: values by name, per device.
        names: what to fetch.
        sources: per name the devices whose values are returned.
        merged: concatenate along axis 0 in device order, else keep a list per name.

    Returns:
        Per name an array, or a list of arrays; None for what has no value. Sparse gradients, which
        cannot be merged, are ``SelectedRows``; offsets of sequences are ``Lod``; arrays of tensors
        are ``TensorArray``.

    Raises:
        EnforceNotMet: the devices' values do not fit together.
    """
    results: list[Any] = []
    for name, devices in zip(names, sources, strict=True):
        values, plain = [], merged
        for device in devices:  # loops, as every step comes through here
            if name in envs[device]:
                values.append(value := envs[device][name])
                plain = plain and type(value) is np.ndarray
        if plain and len(values) == 1:
            results.append(np.array(values[0]).view(array))
        elif plain and values and values[0].ndim:
            results.append(_concatenated(name, values))
        else:
            results.append(_collected(name, values, merged))
    return results


def fetched_of(plan: Plan, envs: Sequence[Env], merged: bool) -> list[Any]:
    """Copies of a plan's fetches, see :func:`collect`.

    Args:
        plan: the plan that ran.
        envs: the values, per device.
        merged: see :func:`collect`.
    """
    for device, name, home in plan.fetched_elsewhere:
        envs[device][name] = envs[home][name]
    return collect(envs, plan.key.fetch, plan.sources, merged)


def _concatenated(name: str, values: Sequence[np.ndarray[Any, Any]]) -> Any:
    """Concatenate arrays of the host."""
    try:
        return np.concatenate(values).view(array)
    except ValueError:
        check_merge(name, [array_spec(value) for value in values])
        raise


def _collected(name: str, values: Sequence[Any], merged: bool) -> Any:
    joined = merged and len(values) > 1  # which copies them
    values = [_on_host(value) if joined else host_copy(value) for value in values]
    return _merged(name, values) if merged else [_returned(value) for value in values]


def _merged(name: str, values: Sequence[Any]) -> Any:
    """The result of :func:`merge`, or an error: shapes that depend on values are checked here."""
    try:
        return merge(values)
    except ValueError:
        check_merge(name, [array_spec(value) for value in values])
        raise


def merge(values: Sequence[Any]) -> Any:
    """The devices' values one after another along axis 0; None if there are none."""
    if not values:
        return None
    if isinstance(values[0], Lod):
        return Lod.merged(values)
    if isinstance(values[0], TensorArray):
        return TensorArray(map(_merged_entry, zip(*values, strict=True)))
    if isinstance(values[0], LoDTensor):
        return in_sequences(
            merge([v.array for v in values]), Lod.merged([Lod(v.lod()) for v in values])
        )
    return _returned(np.concatenate(values) if len(values) > 1 else values[0])


def _merged_entry(entries: Sequence[Entry | None]) -> Entry | None:
    found = [entry for entry in entries if entry is not None]
    merged = merge([array for array, _ in found]), Lod.merged([lod for _, lod in found])
    return merged if found else None


class array(np.ndarray[Any, Any]):
    """A fetched array; with one element it can be used as a number.

    Fluid programs write ``float(loss)`` and ``"%f" % row`` of arrays of shape ``(1,)``, which
    NumPy refuses since 2.4. The name is what ``repr`` shows.
    """

    def __array_wrap__(
        self, value: np.ndarray[Any, Any], context: Any = None, return_scalar: bool = False
    ) -> Any:
        return value[()] if return_scalar else super().__array_wrap__(value, context, False)

    def __float__(self) -> float:
        return float(self.item()) if self.size == 1 else super().__float__()

    def __int__(self) -> int:
        return int(self.item()) if self.size == 1 else super().__int__()

    def __complex__(self) -> complex:
        return complex(self.item()) if self.size == 1 else super().__complex__()


def _returned(value: Any) -> Any:
    return value if isinstance(value, (SelectedRows, Lod, TensorArray)) else value.view(array)


def _on_host(value: Any) -> Any:
    if isinstance(value, TensorArray):
        return host_copy(value)
    return value.get() if hasattr(value, "get") else value


def host_copy(value: Any) -> Any:
    """A copy of a value on the host; values that never change are not copied."""
    return with_arrays(value, lambda array: np.array(_on_host(array)))


class Later:
    """A fetch that devices have not computed yet.

    Args:
        get: waits for the value and returns it.
    """

    def __init__(self, get: Callable[[], Any]) -> None:
        self.get = get


def in_sequences(array: Any, lod: Any) -> Any:
    """A tensor with the offsets of its sequences; an array without offsets stays what it is.

    Args:
        array: what was fetched; or a list, of several devices.
        lod: the offsets; or a list likewise.
    """
    if isinstance(array, list) and lod is not None:
        return [in_sequences(*pair) for pair in zip(array, lod, strict=True)]
    if not lod:
        return array
    tensor: LoDTensor = _tensor(array)
    tensor._lod = lod.to_lists()  # as they are: ctc_align may make a row that no sequence has
    return tensor


class FetchedOffsets:
    """Knows which offsets to fetch with variables that hold sequences.

    Args:
        sequences: a program in which offsets are variables.
    """

    def __init__(self, sequences: Sequences) -> None:
        self._offsets = sequences.offsets
        self._declared = sequences.program.global_block().vars

    def __bool__(self) -> bool:
        """Whether anything holds sequences."""
        return bool(self._offsets)

    def hold(self, fetch: Sequence[str]) -> bool:
        """Whether some of the names may hold sequences."""
        return bool(self._offsets) and not self._offsets.keys().isdisjoint(fetch)

    def of(self, batches: Sequence[Feeds], fetch: Sequence[str]) -> dict[str, str]:
        """The offsets of the fetches by name, except offsets that are not fed.

        Args:
            batches: what will be run.
            fetch: names that will be fetched.
        """
        offsets = {name: self._offsets[name] for name in fetch if name in self._offsets}
        return offsets and {
            name: offset
            for name, offset in offsets.items()
            if not self._declared[offset].is_data or _fed(batches, offset)
        }

    def refuse(self, batches: Sequence[Feeds], fetch: Sequence[str]) -> None:
        """Refuse to return variables that hold sequences as arrays.

        Args:
            batches: what will be run.
            fetch: names that will be fetched as arrays.

        Raises:
            RuntimeError: one holds sequences that are fed.
        """
        if any(_fed(batches, self._offsets[name]) for name in fetch if name in self._offsets):
            raise see("sequences-fetched-as-arrays", RuntimeError(_SEQUENCES_FETCHED))


def _fed(batches: Sequence[Feeds], name: str) -> bool:
    return any(name in values for feeds in batches for values in feeds.values)


def as_arrays(results: list[Any]) -> list[Any]:
    """Wait for all results and return them as arrays.

    Raises:
        RuntimeError: a result holds sequences, whose offsets an array cannot hold.
    """
    found = []
    for item in results:
        if type(item) is array:
            found.append(item)
        else:
            found.append(_as_array(item.get() if isinstance(item, Later) else item))
    return found


def _as_array(value: Any) -> Any:
    if isinstance(value, list):
        return as_arrays(value)
    if isinstance(value, TensorArray):
        return as_arrays(_tensors(value, lambda array: array))
    if isinstance(value, LoDTensor):
        raise see("sequences-fetched-as-arrays", RuntimeError(_SEQUENCES_FETCHED))
    return value


def _tensors(value: TensorArray, alone: Callable[[Any], Any]) -> list[Any]:
    """The entries as tensors with sequences; ``alone`` makes something of those without."""
    pairs = (entry or (None, Lod()) for entry in value)
    return [in_sequences(array, lod) if lod else alone(array) for array, lod in pairs]


def as_tensors(results: list[Any]) -> list[Any]:
    """The results as ``LoDTensor``; reading one waits until its value is computed."""
    return [as_tensors(item) if isinstance(item, list) else _tensor(item) for item in results]


def _tensor(value: Any) -> Any:
    if value is None or isinstance(value, (SelectedRows, LoDTensor)):
        return value
    if isinstance(value, TensorArray):
        empty = LoDTensor()
        return LoDTensorArray(_tensors(value, lambda a: empty if a is None else _tensor(a)))
    tensor = LoDTensor()
    if isinstance(value, Later):
        tensor.defer(value.get)
    else:
        tensor.array = value
    return tensor
