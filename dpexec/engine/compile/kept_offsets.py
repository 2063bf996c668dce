"""The sequences (LoD) of persistable variables: they lie in the scope, beside the values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dpexec.engine.compile.replicas import Replicas
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.lod import NO_SEQUENCES, Lod, lod_name
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.ir.block import Block

__all__ = ["KeptOffsets"]


class KeptOffsets:
    """Brings the offsets of persistable variables from the scope to a run, and fed ones back.

    In a run they are offsets like others, which every device is fed.

    Args:
        block: the global block of a program in which offsets are variables.
        replicas: the persistable variables.
        away: whether values lie on a cluster.

    Attributes:
        written: names of variables whose sequences a run makes: none with several devices, which
            have different ones, nor on a cluster.
    """

    def __init__(self, block: Block, replicas: Replicas, away: bool) -> None:
        self._names = [
            name
            for name, var in block.vars.items()
            if var.persistable and lod_name(name) in block.vars
            if block.vars[lod_name(name)].is_data
        ]
        self._replicas = replicas
        alone = len(replicas.places) == 1 and not away
        self._apart = alone or not (replicas.shared or away)
        outputs = {name for op in block.ops for name in op.writes} if alone else ()
        self.written = [n for n in outputs if n in block.vars and block.vars[n].persistable]

    def add(self, feeds: Feeds) -> Feeds:
        """The feeds with what the scope has for variables that are not fed.

        Args:
            feeds: of all devices.

        Raises:
            EnforceNotMet: a variable is fed sequences that its devices cannot keep.
        """
        if not self._names:
            return feeds
        values: list[dict[str, Any]] = [dict(fed) for fed in feeds.values]
        for name in self._names:
            if any(name in fed for fed in values):
                self._check(name, any(lod_name(name) in fed for fed in values))
                continue
            for device, fed in enumerate(values):
                lod = self._replicas.lod(device, name)
                if lod:
                    fed[lod_name(name)] = lod
        return replace(feeds, values=values)

    def _check(self, name: str, sequences: bool) -> None:
        if sequences and not self._apart:
            raise EnforceNotMet(
                f"fed Variable {name!r} is persistable and holds sequences, which devices that "
                "share their variables, or lie on a cluster, do not keep: set it in the scope, or "
                "declare it without persistable"
            )

    def keep(self, name: str, lod: Lod | None) -> None:
        """Keep the sequences that a run has made.

        Args:
            name: one of :attr:`written`.
            lod: its offsets; None for no sequences.
        """
        self._replicas.keep_lod(0, name, lod or NO_SEQUENCES)

    def store(self, feeds: Feeds) -> None:
        """Keep the sequences of what a run was fed for persistable variables.

        Args:
            feeds: what ran.
        """
        for name in feeds.persistable if self._names else ():
            values: list[Mapping[str, Any]] = [*feeds.values]
            for device, fed in enumerate(values):
                if name in fed:
                    self._replicas.keep_lod(device, name, fed.get(lod_name(name), NO_SEQUENCES))
