"""The sequences (LoD) of persistable variables: they lie in the scope, beside the values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpexec.engine.compile.plans.replicas import Replicas
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.lod import NO_SEQUENCES, lod_name
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.ir.block import Block

__all__ = ["KeptOffsets"]


class KeptOffsets:
    """Brings the offsets of persistable variables from the scope to a run, and fed ones back.

    In a run they are fed to every device, like other offsets.

    Args:
        block: the global block of a program in which offsets are variables.
        replicas: the persistable variables.

    Attributes:
        names: names of the variables.
        written: names of variables whose sequences a run makes.
    """

    def __init__(self, block: Block, replicas: Replicas) -> None:
        self.names = [
            name
            for name, var in block.vars.items()
            if var.persistable and lod_name(name) in block.vars
            if block.vars[lod_name(name)].is_data
        ]
        self._replicas = replicas
        self._apart = len(replicas.places) == 1 or replicas.away or not replicas.shared
        outputs = dict.fromkeys(name for op in block.ops for name in op.writes)
        self.written = [n for n in outputs if n in block.vars and block.vars[n].persistable]

    def add(self, feeds: Feeds) -> Feeds:
        """The feeds, completed by the scope's offsets of variables that are not fed.

        Args:
            feeds: of all devices.

        Raises:
            EnforceNotMet: a variable is fed sequences that its devices cannot keep.
        """
        if not self.names:
            return feeds
        values: list[dict[str, Any]] = [dict(fed) for fed in feeds.values]
        for name in self.names:
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
                "share their variables do not keep: set it in the scope, or declare it without "
                "persistable"
            )

    def store(
        self, feeds: Feeds, made: Mapping[str, str], found: Sequence[Mapping[str, Any]]
    ) -> None:
        """Store the sequences of persistable variables that a run was fed or made.

        Args:
            feeds: the feeds of the run.
            made: the variables that hold the offsets of some of :attr:`written`.
            found: fetched offsets, per device; variables without have no sequences.
        """
        replicas = self._replicas
        for name in feeds.persistable if self.names else ():
            values: list[Mapping[str, Any]] = [*feeds.values]
            for device, fed in enumerate(values):
                if name in fed:
                    replicas.keep_lod(device, name, fed.get(lod_name(name), NO_SEQUENCES))
        for name, offset in made.items():
            for device, values_there in enumerate(found):
                if feeds.samples[device]:
                    replicas.keep_lod(device, name, values_there.get(offset) or NO_SEQUENCES)
