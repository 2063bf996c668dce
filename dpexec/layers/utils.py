"""``fluid.layers.utils``: functions on structures: nested lists, tuples and dicts.

Users' cells and decoders flatten and pack their states with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["assert_same_structure", "flatten", "is_sequence", "map_structure", "pack_sequence_as"]


def convert_to_list(value: Any, n: int, name: str, dtype: type = int) -> list[Any]:
    """Repeat a number to a list of length ``n``; a list of ``n`` numbers is returned as it is.

    Args:
        value: a number, or a list of ``n`` numbers.
        n: length of the list.
        name: name of the argument, for the error message.
        dtype: type of the numbers.

    Returns:
        A list of ``n`` numbers.

    Raises:
        ValueError: the value is neither of them.

    Example:
        >>> import dpexec as fluid
        >>> fluid.layers.utils.convert_to_list(3, 2, "stride")
        [3, 3]
    """
    if isinstance(value, dtype):
        return [value] * n
    wanted = f"The {name}'s type must be list or tuple of {n} {dtype}. Received: {value!r}"
    try:
        found = list(value)
        for item in found:
            dtype(item)
    except (TypeError, ValueError):
        raise ValueError(wanted) from None
    if len(found) != n:
        raise ValueError(wanted)
    return found


def is_sequence(seq: Any) -> bool:
    """Whether an object is a structure: a list, a tuple or a dict, but not a string.

    Args:
        seq: any object.

    Returns:
        The answer.

    Example:
        >>> import dpexec as fluid
        >>> fluid.layers.utils.is_sequence([1]), fluid.layers.utils.is_sequence("ab")
        (True, False)
    """
    return isinstance(seq, (Mapping, Sequence)) and not isinstance(seq, str)


def flatten(nest: Any) -> list[Any]:
    """The elements of a structure, depth first; dicts' values in the order of sorted keys.

    Args:
        nest: the structure; any other object is returned as the only element.

    Returns:
        The elements.

    Example:
        >>> import dpexec as fluid
        >>> fluid.layers.utils.flatten([1, (2, [3])])
        [1, 2, 3]
    """
    return (
        [part for item in _items(nest) for part in flatten(item)] if is_sequence(nest) else [nest]
    )


def pack_sequence_as(structure: Any, flat_sequence: Sequence[Any]) -> Any:
    """Arrange values in a given structure.

    Args:
        structure: the structure to imitate.
        flat_sequence: one value for each element, in the order of :func:`flatten`.

    Returns:
        The values in the form of ``structure``.

    Raises:
        TypeError: the values are no sequence.
        ValueError: there are too many or too few.

    Example:
        >>> import dpexec as fluid
        >>> fluid.layers.utils.pack_sequence_as([0, [0, 0]], [1, 2, 3])
        [1, [2, 3]]
    """
    if not is_sequence(flat_sequence):
        raise TypeError("flat_sequence must be a sequence")
    if len(flatten(structure)) != len(flat_sequence):
        raise ValueError(
            f"could not pack {len(flat_sequence)} values into a structure of "
            f"{len(flatten(structure))}: {structure}"
        )
    return _packed(structure, iter(flat_sequence))


def map_structure(func: Callable[..., Any], *structure: Any) -> Any:
    """Apply ``func`` to corresponding elements of structures; returns the first's structure.

    Args:
        func: takes as many arguments as there are structures.
        structure: one or more structures of the same form.

    Returns:
        The results, in the form of the first structure.

    Example:
        >>> import dpexec as fluid
        >>> fluid.layers.utils.map_structure(lambda x: x + 1, {"h": 1, "c": [2, 3]})
        {'h': 2, 'c': [3, 4]}
    """
    parts = zip(*(flatten(one) for one in structure), strict=False)
    return pack_sequence_as(structure[0], [func(*these) for these in parts])


def assert_same_structure(nest1: Any, nest2: Any, check_types: bool = True) -> None:
    """Check that structures have the same form.

    Args:
        nest1: the first structure.
        nest2: the second structure.
        check_types: also compare types (lists differ from tuples) and keys of dicts.

    Raises:
        TypeError: their types differ.
        ValueError: their sizes or depths differ, or the keys of a dict.

    Example:
        >>> from dpexec.layers import utils
        >>> utils.assert_same_structure([1, (2, 3)], ["a", ("b", "c")])
        >>> try:
        ...     utils.assert_same_structure([1, (2, 3)], [1, 2])
        ... except ValueError as error:
        ...     print(type(error).__name__)
        ValueError
    """
    if is_sequence(nest1) != is_sequence(nest2) or len(flatten(nest1)) != len(flatten(nest2)):
        raise ValueError(f"the structures differ:\n{nest1}\n{nest2}")
    if not is_sequence(nest1):
        return
    if check_types and type(nest1) is not type(nest2):
        raise TypeError(f"the structures differ: {type(nest1)} and {type(nest2)}")
    if check_types and isinstance(nest1, Mapping) and set(nest1) != set(nest2):
        raise ValueError(f"the keys differ: {sorted(nest1)} and {sorted(nest2)}")
    for one, other in zip(_items(nest1), _items(nest2), strict=True):
        assert_same_structure(one, other, check_types)


def _items(structure: Any) -> list[Any]:
    if isinstance(structure, Mapping):
        return [structure[key] for key in sorted(structure)]
    return list(structure)


def _packed(structure: Any, values: Iterator[Any]) -> Any:
    if not is_sequence(structure):
        return next(values)
    items = [_packed(item, values) for item in _items(structure)]
    if isinstance(structure, Mapping):
        made = dict(zip(sorted(structure), items, strict=True))
        return type(structure)((key, made[key]) for key in structure)  # type: ignore[call-arg]
    if hasattr(structure, "_fields"):
        return type(structure)(*items)
    return type(structure)(items)
