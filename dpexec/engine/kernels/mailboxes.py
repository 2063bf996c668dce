"""Words of boxes for messages between processes, see :mod:`dpexec.engine.exchange.words`."""

from __future__ import annotations

from dpexec.engine.kernels.atomics import load, store, wait_politely
from dpexec.engine.kernels.compiling import entry
from dpexec.engine.kernels.machine import count, own_words

__all__ = ["ASLEEP", "BYTES", "HELD", "KIND", "SENT", "TAKEN", "post", "rung"]

SENT, KIND, BYTES, HELD = range(4)
"""Positions of the sender's words: how many messages it has sent; kind and bytes of the message in
the box; how many messages there are up to that one."""
ASLEEP, TAKEN = 8, 9
"""Positions of the receiver's words: whether it sleeps, and how many messages it has taken."""


@entry
def post(box: int, kind: int, nbytes: int, sent: int) -> int:
    """Say that a message lies in a box.

    Args:
        box: address of the box, which has the bytes of the message.
        kind: of the message.
        nbytes: how many bytes it has.
        sent: how many messages were sent, this one included.

    Returns:
        1 if the receiver sleeps.
    """
    words = own_words(box)
    words[KIND], words[BYTES], words[HELD] = kind, nbytes, sent
    store(box + 8 * SENT, sent)
    return load(box + 8 * ASLEEP)


@entry
def rung(bells: int, number: int, patience: int) -> int:
    """Wait until words of other processes have exceeded a number each.

    Args:
        bells: address of int64 ``(number, 2)``: the address of a word, and its number.
        number: how many words there are.
        patience: the most turns of spinning.

    Returns:
        1 if all have done so.
    """
    there = idle = 0
    while there < number and idle < patience:
        if load(count(bells, 2 * there)) > count(bells, 2 * there + 1):
            there += 1
        else:
            idle = wait_politely(idle)
    return 1 if there == number else 0
