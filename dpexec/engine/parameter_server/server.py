"""The server's side: gradients come in, parameters go out."""

from __future__ import annotations

import select
import socket

from dpexec.engine.core.places import Place
from dpexec.engine.core.scope import Scope
from dpexec.engine.exchange.endpoints import Endpoint, listen
from dpexec.engine.exchange.reception import Reception
from dpexec.engine.exchange.secret import secret_of
from dpexec.engine.exchange.wire import Channel, GangError, Tag, say_goodbye
from dpexec.engine.ir.program import Program
from dpexec.engine.parameter_server.client import limit_of_waiting
from dpexec.engine.parameter_server.messages import Message, Values, receive, send
from dpexec.engine.parameter_server.rounds import UpdateRounds
from dpexec.engine.parameter_server.update import Update, listener
from dpexec.engine.parameter_server.visitors import Visitors

__all__ = ["serve"]

_LOOK = 0.1  # seconds between looks at whether the server has failed
_GOODBYE = 3.0  # seconds that trainers have at the end to take what is said to them


def serve(program: Program, scope: Scope, place: Place) -> None:
    """Run the program of a parameter server, until all trainers are done.

    Args:
        program: with ``listen_and_serv``.
        scope: where its parameters are; its startup program has run.
        place: where it computes.

    Raises:
        GangError: a trainer is gone, or does not answer within ``FLAGS_rpc_deadline``.
        EnforceNotMet: an update failed.
    """
    _Server(program, scope, place).run()


class _Server:
    def __init__(self, program: Program, scope: Scope, place: Place) -> None:
        op = listener(program)
        assert op is not None
        self._endpoint = Endpoint.parse(op.attr("endpoint"))
        self._secret = secret_of([self._endpoint])
        self._limit = limit_of_waiting()
        bound = None if op.attr("distributed_mode") == 0 else op.attr("max_staleness")
        self._rounds = UpdateRounds(
            Update(program, scope, place), op.attr("Fanin"), bound, self._limit
        )

    def run(self) -> None:
        """Let trainers in, and serve each on a thread of its own."""
        reception, visitors = Reception(self._secret), Visitors(self._welcome)
        listen(reception, self._endpoint)
        try:
            while not self._rounds.over:
                expected = self._rounds.missing.__contains__
                for trainer, sock in reception.admit(expected, _LOOK):
                    if self._rounds.arrive(trainer):
                        _stay_alive(sock)
                        visitors.let_in(trainer, Channel(sock, f"trainer {trainer}"))
                    else:
                        sock.close()
                self._rounds.check_arrivals(reception.sent_away)
        except BaseException as error:
            self._rounds.fail(error)
            raise
        finally:
            reception.close()
            visitors.end(_GOODBYE)
        if self._rounds.error is not None:
            raise self._rounds.error

    def _welcome(self, trainer: int, channel: Channel) -> None:
        """Serve a trainer."""
        try:
            self._attend(trainer, channel)
        except BaseException as error:  # whatever it is, all trainers have to know
            self._rounds.fail(error)
            say_goodbye({0: channel}, f"parameter server {self._endpoint}: {self._rounds.error}")

    def _attend(self, trainer: int, channel: Channel) -> None:
        """Answer the requests of a trainer until it is done."""
        number = 0
        while True:
            self._await_request(channel)
            tag = Tag(number, 0, f"request {number} of trainer {trainer}")
            number += 1
            request = receive(channel, tag, self._limit)
            values: Values = {}
            if request.kind == "push":
                values = self._rounds.push(trainer, request.values)
            elif request.kind == "pull":
                values = self._rounds.pull(trainer)
            elif request.kind == "rows":
                values = self._rounds.fetch(request.values)
            elif request.kind == "complete":
                self._rounds.leave(trainer)
            else:
                raise GangError(f"trainer {trainer} asks for {request.kind!r}")
            send(channel, tag, Message(request.kind, values), self._limit)
            if request.kind == "complete":
                return

    def _await_request(self, channel: Channel) -> None:
        """Wait as long as the trainer computes; a connection that breaks is readable, too."""
        poll = select.poll()
        poll.register(channel.sock, select.POLLIN)
        while not poll.poll(_LOOK * 1000):
            if self._rounds.error is not None:
                raise GangError(str(self._rounds.error))


def _stay_alive(sock: socket.socket) -> None:
    """Let the system notice when a trainer's machine is gone while it owes nothing."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
