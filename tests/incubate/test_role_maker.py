"""Role makers: what a process learns from the environment or from the script."""

import pytest

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.incubate.fleet.base.role_maker import (
    PaddleCloudRoleMaker,
    Role,
    UserDefinedCollectiveRoleMaker,
    UserDefinedRoleMaker,
)

SERVERS = ["127.0.0.1:6001", "127.0.0.1:6002"]
TRAINER = {
    "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(SERVERS),
    "PADDLE_TRAINERS_NUM": "3",
    "TRAINING_ROLE": "TRAINER",
    "PADDLE_TRAINER_ID": "2",
}
SERVER = {**TRAINER, "TRAINING_ROLE": "PSERVER", "POD_IP": "127.0.0.1", "PADDLE_PORT": "6002"}


@pytest.fixture
def environment(monkeypatch):
    """Sets variables of the environment."""
    for name in {*SERVER, "PADDLE_TRAINER_ENDPOINTS", "PADDLE_TRAINING_ROLE"}:
        monkeypatch.delenv(name, raising=False)

    def put(variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return put


def test_a_trainer_and_a_server_of_the_environment(environment):
    environment(TRAINER)
    trainer = PaddleCloudRoleMaker()
    assert trainer.is_worker() and not trainer.is_server() and not trainer.is_first_worker()
    assert (trainer.worker_index(), trainer.worker_num()) == (2, 3)
    environment(SERVER)
    assert trainer.is_worker(), "a role is found out once"
    server = PaddleCloudRoleMaker()
    assert server.is_server() and server.server_index() == 1
    assert server.get_pserver_endpoints() == SERVERS


def test_trainers_alone_of_the_environment(environment):
    environment({"PADDLE_TRAINER_ENDPOINTS": "a:1,b:2", "PADDLE_TRAINER_ID": "0"})
    trainer = PaddleCloudRoleMaker(is_collective=True)
    assert trainer.is_first_worker() and trainer.worker_num() == 2
    assert trainer.get_trainer_endpoints() == ["a:1", "b:2"]


@pytest.mark.parametrize(
    ("variables", "error", "message"),
    [
        ({}, KeyError, "PADDLE_PSERVERS_IP_PORT_LIST is not set: .* --servers M"),
        ({**TRAINER, "TRAINING_ROLE": "BOSS"}, ValueError, "PSERVER or TRAINER"),
        ({**SERVER, "PADDLE_PORT": "7"}, ValueError, r"127\.0\.0\.1:7, which is none of"),
    ],
)
def test_what_is_wrong_with_an_environment_is_said(environment, variables, error, message):
    environment(variables)
    with pytest.raises(error, match=message):
        PaddleCloudRoleMaker().generate_role()


def test_trainers_alone_need_endpoints(environment):
    with pytest.raises(AssertionError, match=r"can't find PADDLE_TRAINER_ENDPOINTS.* --trainers N"):
        PaddleCloudRoleMaker(is_collective=True).generate_role()


def test_roles_that_the_script_gives():
    server = UserDefinedRoleMaker(1, Role.SERVER, 2, SERVERS)
    assert server.is_server() and server.server_index() == 1 and server.worker_num() == 2
    trainer = UserDefinedCollectiveRoleMaker(1, SERVERS)
    assert trainer.is_worker() and trainer.worker_index() == 1 and trainer.worker_num() == 2
    assert trainer.to_string() == (
        f"role: 1, current_id: 1, worker_endpoints: {SERVERS}, server_endpoints: []"
    )


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((0, Role.WORKER, 1, "a:1"), TypeError),
        ((0, Role.WORKER, 1, [1]), TypeError),
        ((0, Role.WORKER, 1, []), ValueError),
        ((0, Role.WORKER, 1, ["a:1", "a:1"]), ValueError),
        ((0, 3, 1, SERVERS), TypeError),
        (("0", Role.WORKER, 1, SERVERS), TypeError),
        ((-1, Role.WORKER, 1, SERVERS), ValueError),
        ((2, Role.SERVER, 1, SERVERS), ValueError),
        ((0, Role.WORKER, "1", SERVERS), TypeError),
        ((0, Role.WORKER, 0, SERVERS), ValueError),
    ],
)
def test_roles_that_cannot_be_are_refused(arguments, error):
    with pytest.raises(error):
        UserDefinedRoleMaker(*arguments)


def test_a_trainer_alone_has_one_of_the_endpoints():
    with pytest.raises(ValueError, match="at least 0 and less than 2, but received 2"):
        UserDefinedCollectiveRoleMaker(2, SERVERS)


def test_what_needs_gloo_is_refused():
    with pytest.raises(EnforceNotMet, match="barrier_worker is not supported"):
        UserDefinedCollectiveRoleMaker(0, SERVERS).barrier_worker()
