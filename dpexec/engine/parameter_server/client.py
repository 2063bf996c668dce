"""The trainer's side: one exchange with all servers at the end of a step."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.exchange.channels import Channel
from dpexec.engine.exchange.endpoints import Endpoint, connect, encryption, secret_of
from dpexec.engine.exchange.messages import Message, Values, talk
from dpexec.engine.exchange.reception import knock
from dpexec.engine.exchange.wire import GangError, Tag, say_goodbye

__all__ = ["DEADLINE", "Servers", "limit_of_waiting"]

DEADLINE = "FLAGS_rpc_deadline"
_NEWS = 2.0  # extra seconds for servers to report which trainers did not answer


def limit_of_waiting() -> float:
    """How long trainers and servers wait for each other, in seconds.

    As in fluid, it is set by the environment variable ``FLAGS_rpc_deadline``, in milliseconds.

    Raises:
        EnforceNotMet: the variable is not a positive number.
    """
    text = os.environ.get(DEADLINE, "180000")
    if not text.isdecimal() or int(text) == 0:
        raise EnforceNotMet(f"{DEADLINE} is a number of milliseconds, not {text!r}")
    return int(text) / 1000


class Servers:
    """A trainer's connections to the parameter servers of a run.

    Args:
        endpoints: addresses of the servers.
        trainer: number of this trainer.
    """

    _known: ClassVar[weakref.WeakSet[Servers]] = weakref.WeakSet()

    def __init__(self, endpoints: Sequence[str], trainer: int) -> None:
        self._endpoints = list(endpoints)
        self._trainer = trainer
        self._channels: dict[int, Channel] = {}
        self._requests = 0
        self._done = False
        self._busy = threading.Lock()

    @classmethod
    def of(cls, endpoints: Sequence[str], trainer: int) -> Servers:
        """The connections to servers, shared by all programs of a trainer."""
        for known in cls._known:
            own = known._trainer == trainer and set(endpoints) <= set(known._endpoints)
            if own and not known._done:
                return known
        made = cls(endpoints, trainer)
        cls._known.add(made)
        return made

    def exchange(self, kind: str, values: Mapping[str, Values]) -> dict[str, Values]:
        """Send a request to servers, and receive their answers.

        Args:
            kind: kind of the request.
            values: values to send, by endpoint.

        Returns:
            The answers, by endpoint.

        Raises:
            GangError: a server did not answer within the limit, or ends the run.
        """
        with self._busy:
            self._connect()
            messages = {
                number: Message(kind, values.get(endpoint, {}))
                for number, endpoint in enumerate(self._endpoints)
            }
            tag = Tag(self._requests, 0, f"request {self._requests} of trainer {self._trainer}")
            self._requests += 1
            try:
                limit = limit_of_waiting() + _NEWS
                answers = talk(self._channels, tag, messages, messages, limit)
            except GangError as error:
                self.leave(str(error))
                raise
            return {self._endpoints[number]: answer.values for number, answer in answers.items()}

    def connect(self) -> None:
        """Connect to the servers, if not done yet.

        Raises:
            GangError: a server did not answer within the limit.
        """
        with self._busy:
            self._connect()

    def _connect(self) -> None:
        if self._channels:
            return
        if self._done:
            raise GangError(f"trainer {self._trainer} has left the parameter servers before")
        endpoints = [Endpoint.parse(text) for text in self._endpoints]
        secret, limit = secret_of(endpoints), limit_of_waiting()
        for number, endpoint in enumerate(endpoints):
            comes = partial(connect, endpoint, encryption(), "worker")
            name = f"parameter server at {endpoint}"
            self._channels[number] = knock(comes, secret, self._trainer, limit, name)

    def complete(self) -> None:
        """Tell the servers that this trainer is done, and disconnect."""
        if self._channels:
            with contextlib.suppress(GangError):
                self.exchange("complete", {})
        self.leave("")

    def leave(self, why: str) -> None:
        """Disconnect from the servers.

        Args:
            why: an error that ends the run for all trainers; empty if there is none.
        """
        channels, self._channels = self._channels, {}
        self._done = True
        if why:
            say_goodbye(channels, f"trainer {self._trainer} has failed: {why}")
        for channel in channels.values():
            channel.close()
