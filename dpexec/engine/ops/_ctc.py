"""Connectionist temporal classification: the sum over all alignments of tags with time steps.

Blanks may stand between tags, before and after them, and every tag may last for several steps. So a
sequence of L tags goes through 2 L + 1 states: blank, first tag, blank ... The computation uses
logarithms of probabilities in double precision, so that unlikely alignments do not underflow.

Source: Graves et al., 2006.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.light_dataclasses import dataclass

NEVER = -1e30
"""Stands for the logarithm of 0; finite, so that differences are defined."""


def _added(xp: Any, parts: list[Any]) -> Any:
    """The logarithm of the sum of the exponentials of the parts."""
    top = parts[0]
    for part in parts[1:]:
        top = xp.maximum(top, part)
    total = sum(xp.exp(part - top) for part in parts)
    return xp.log(total) + top


@dataclass(frozen=True)
class States:
    """The states that a batch of sequences goes through.

    Attributes:
        classes: the class of every state, ``(batch, states)``.
        skip: 0 if a state may follow the state two before it, skipping a blank; else ``NEVER``.
        last: 0 for the states that sequences may end with, else ``NEVER``.
    """

    classes: Any
    skip: Any
    last: Any

    @classmethod
    def of(cls, tags: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any], blank: int) -> States:
        """From tags.

        Args:
            tags: ``(batch, most tags)``; those beyond the length are not used.
            lengths: number of tags, ``(batch,)``.
            blank: the class of blanks.
        """
        batch, most = tags.shape
        classes = np.full((batch, 2 * most + 1), blank, np.int64)
        classes[:, 1::2] = np.where(np.arange(most) < lengths[:, None], tags, blank)
        skips = np.zeros(classes.shape, bool)
        skips[:, 2:] = (classes[:, 2:] != blank) & (classes[:, 2:] != classes[:, :-2])
        behind = 2 * lengths[:, None] - np.arange(2 * most + 1)
        last = (behind == 0) | (behind == 1)
        return cls(classes, np.where(skips, 0, NEVER), np.where(last, 0, NEVER))


@dataclass(frozen=True)
class Ways:
    """Log-probabilities of all alignments.

    Args:
        xp: NumPy, or a module with its interface.
        scores: logarithm of the probability of each state's class, ``(steps, batch, states)``.
        skip: see :class:`States`.
        last: see :class:`States`.
        ends: the last step of every sequence, ``(batch,)``.
    """

    xp: Any
    scores: Any
    skip: Any
    last: Any
    ends: Any

    def until(self) -> Any:
        """Forward variables: log-probabilities of the states at a step and all steps before it."""
        xp, found = self.xp, self.xp.full(self.scores.shape, NEVER)
        found[0, :, :2] = self.scores[0, :, :2]
        wide = xp.full((*self.skip.shape[:1], self.skip.shape[1] + 2), NEVER)
        for step in range(1, len(found)):
            wide[:, 2:] = found[step - 1]
            before = [wide[:, 2:], wide[:, 1:-1], wide[:, :-2] + self.skip]
            found[step] = _added(xp, before) + self.scores[step]
        return found

    def after(self) -> Any:
        """Backward variables: the log-probability of all later steps, given a state at a step."""
        xp, found = self.xp, self.xp.empty_like(self.scores)
        found[-1] = self.last
        wide = xp.full((*self.skip.shape[:1], self.skip.shape[1] + 2), NEVER)
        two = wide.copy()
        for step in range(len(found) - 2, -1, -1):
            wide[:, :-2] = found[step + 1] + self.scores[step + 1]
            two[:, :-2] = wide[:, :-2] + self.skip
            now = _added(xp, [wide[:, :-2], wide[:, 1:-1], two[:, 2:]])
            found[step] = xp.where((self.ends == step)[:, None], self.last, now)
        return found

    def total(self, until: Any) -> Any:
        """The log-probability of the tags, ``(batch,)``; ``NEVER`` if there are too many tags."""
        xp = self.xp
        found = until[self.ends, xp.arange(len(self.ends))] + self.last
        return _added(xp, list(found.T))
