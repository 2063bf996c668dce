"""Puts parts of two runs together where they have one cause: a late device, or a loop's rounds.

A device is late for one operator alone, or for all of them: because of its core, or as it is fed
more. Only in the first case the operator is named. If a loop runs more rounds, its operators take
longer for that alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dpexec.viz.measured.step_parts import InBlock, LateOn, Part

_MUCH = 0.25  # of what a device is late, so that an operator may be named
_ALONE = 1.2  # times as much as the other operators of the device, likewise
_EXPLAINED = 0.5  # of the difference that its longer median must explain, likewise
_MOSTLY = 0.3  # of all differences between devices, so that a device is named
_ROUNDS = 0.005  # more rounds, from which on loops are said to run more of them

Ends = tuple[float, float]
"""A figure of the first run, and of the second one."""


class Gathering:
    """Which parts are one cause.

    Args:
        differences: By part: seconds that it adds to a step.
        seconds: For parts of late devices: seconds of their operator on the device.
        rounds: By operator with a block: its rounds.
        names: Names of parts.
        rewritten: Operators that other operators of the other run replace, by the part that stands
            for them, which has a name.
    """

    def __init__(
        self,
        differences: Mapping[Part, float],
        seconds: Mapping[Part, Ends],
        rounds: Mapping[Part, Ends],
        names: Mapping[Part, str],
        rewritten: Mapping[Part, Part] | None = None,
    ) -> None:
        self.names = dict(names)
        self._cause: dict[Part, Part] = {}
        self._of_rewritten(differences, rewritten or {})
        self._of_loops(differences, rounds)
        self._of_devices(differences, seconds)

    def cause(self, part: Part) -> Part:
        """Return the part that stands for a part and for others of the same cause."""
        return self._cause.get(part, part)

    def _of_rewritten(self, parts: Iterable[Part], rewritten: Mapping[Part, Part]) -> None:
        for part in parts:
            what = part.key.what if isinstance(part.key, LateOn) else part
            if what in rewritten:
                self._cause[part] = rewritten[what]

    def _of_loops(self, parts: Iterable[Part], rounds: Mapping[Part, Ends]) -> None:
        changed = {}
        for loop, (before, after) in rounds.items():
            if abs(after - before) > _ROUNDS * max(before, after) and min(before, after) > 0:
                assert isinstance(loop.key, tuple)
                cause = changed[loop.key[0]] = Part("operator", ("rounds", loop.key))
                said = f"{after:.4g} rounds, not {before:.4g}, of {self.names.get(loop, 'a loop')}"
                self.names[cause] = said
                self._cause[loop] = cause
        for part in parts:
            if isinstance(part.key, InBlock) and part.key.around in changed:
                self._cause[part] = changed[part.key.around]

    def _of_devices(self, differences: Mapping[Part, float], seconds: Mapping[Part, Ends]) -> None:
        late: dict[int | None, list[Part]] = {}
        for part in differences:
            if isinstance(part.key, LateOn) and part not in self._cause:
                late.setdefault(part.key.device, []).append(part)
        rest: dict[int | None, float] = {}
        for device, parts in late.items():
            alone = set(_alone(parts, differences, seconds))
            for part in alone:
                self.names[part] = f"{self.names[part]}, device {device} alone"
            for part in set(parts) - alone:
                self._cause[part] = Part("straggler", LateOn(None, device))
                rest[device] = rest.get(device, 0.0) + differences[part]
        whole = sum(map(abs, rest.values()))
        for device, size in rest.items():
            cause = Part("straggler", LateOn(None, device))
            self.names[cause] = f"waiting for device {device}"
            if abs(size) < _MOSTLY * whole:
                self._cause.update(
                    (part, Part("straggler"))
                    for part in late[device]
                    if self._cause.get(part) == cause
                )


def _alone(
    parts: Iterable[Part], differences: Mapping[Part, float], seconds: Mapping[Part, Ends]
) -> Iterable[Part]:
    """The operators of a device that alone make it late, as others changed less."""
    known = [part for part in parts if part in seconds]
    whole = sum(abs(differences[part]) for part in known)
    sums = [sum(seconds[part][run] for part in known) for run in (0, 1)]
    for part in known:
        before, after = seconds[part]
        others = sums[0] - before, sums[1] - after
        usual = others[1] / others[0] if min(others) > 0 else 1.0
        changed = after > _ALONE * usual * before or before * usual > _ALONE * after
        changed = changed and abs(after - before) > _EXPLAINED * abs(differences[part])
        if changed and abs(differences[part]) >= _MUCH * whole > 0:
            yield part
