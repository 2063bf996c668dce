"""The server's side: it receives gradients and sends parameters."""

from __future__ import annotations

from dpexec.engine.core.places import Place
from dpexec.engine.core.scope import Scope
from dpexec.engine.exchange.channels import Channel
from dpexec.engine.exchange.endpoints import Endpoint, encryption, secret_of
from dpexec.engine.exchange.lines import Line
from dpexec.engine.exchange.messages import Message, Values, decode, encode
from dpexec.engine.exchange.reception import Reception
from dpexec.engine.exchange.wire import GangError, say_goodbye
from dpexec.engine.ir.program import Program
from dpexec.engine.parameter_server.client import limit_of_waiting
from dpexec.engine.parameter_server.rounds import UpdateRounds
from dpexec.engine.parameter_server.update import Update, listener
from dpexec.engine.parameter_server.visitors import Visitors

__all__ = ["serve"]

_LOOK = 0.1  # seconds between checks for a failure of the server
_GOODBYE = 3.0  # seconds for trainers to receive the last messages


def serve(program: Program, scope: Scope, place: Place) -> None:
    """Run the program of a parameter server, until all trainers are done.

    Args:
        program: a program with ``listen_and_serv``.
        scope: the scope with its parameters, set by the startup program.
        place: the device that computes the updates.

    Raises:
        GangError: a trainer disconnected, or does not answer within ``FLAGS_rpc_deadline``.
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
        """Accept trainers, and serve each on its own thread."""
        reception, visitors = Reception(self._secret), Visitors(self._welcome)
        reception.listen(self._endpoint, str(self._endpoint), encryption())
        try:
            while not self._rounds.over:
                expected = self._rounds.missing.__contains__
                for trainer, sock in reception.admit(expected, _LOOK):
                    if self._rounds.arrive(trainer):
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
            self._attend(trainer, Line(channel, self._limit))
        except BaseException as error:  # all trainers are told about any error
            self._rounds.fail(error)
            say_goodbye({0: channel}, f"parameter server {self._endpoint}: {self._rounds.error}")

    def _attend(self, trainer: int, line: Line) -> None:
        """Answer the requests of a trainer until it is done."""
        while True:
            request = self._request(line)
            values: Values = {}
            if request.said == "push":
                values = self._rounds.push(trainer, request.values)
            elif request.said == "pull":
                values = self._rounds.pull(trainer)
            elif request.said == "rows":
                values = self._rounds.fetch(request.values)
            elif request.said == "complete":
                self._rounds.leave(trainer)
            else:
                raise GangError(f"trainer {trainer} asks for {request.said!r}")
            line.tell(encode(Message(request.said, values)), self._limit)
            if request.said == "complete":
                return

    def _request(self, line: Line) -> Message:
        """The next request of a trainer, without a time limit while the trainer computes."""
        while (data := line.take(_LOOK)) is None:
            if self._rounds.error is not None:
                raise GangError(str(self._rounds.error))
        return decode(data, line.name)
