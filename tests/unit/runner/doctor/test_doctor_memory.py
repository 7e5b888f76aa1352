"""The memory server and its secrets, before anything is started."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from wire.settings import EncryptionSettings, MemorySettings

from runner.config.models import Config
from runner.doctor.finding import Finding, State
from runner.doctor.memory import memory

TOKEN = "eyJhbGciOiJFZERTQSJ9"


class _Refusing(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_error(401)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Refusing) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


def examined(tier: Any = "process", environ: dict[str, str] | None = None, **section: Any) -> Any:
    config = Config(tier=tier, memory=MemorySettings(**section))
    return memory(config, "alice", environ or {})


def test_nothing_is_asked_for_a_local_memory() -> None:
    assert examined() == [Finding("memory secrets", State.OK, "none configured")]


def test_a_server_that_refuses_the_token_does_not_say_what_it_can_do(server: str) -> None:
    secrets, answers = examined(remote_url=server, auth_token_env="TOKEN", environ={"TOKEN": TOKEN})
    assert secrets.what == "the memory server's token configured"
    assert answers.state is State.WARNING
    assert answers.what == f"{server} answers, and does not say what its SQL can do (HTTP 401)"
    assert "memory.auth_token_env" in answers.fix
    assert TOKEN not in f"{answers}"


def test_in_a_cluster_egress_alone_reaches_its_servers() -> None:
    _, found, clear = examined("kubernetes", remote_url="http://memory-a.ns.svc.cluster.local:8080")
    assert found.state is State.OK
    assert "by egress alone" in found.what
    assert clear.state is State.WARNING


def test_missing_secrets_are_named() -> None:
    [found] = examined(encryption=EncryptionSettings(key_env="MEMORY_KEY"))
    assert found.state is State.PROBLEM
    assert "MEMORY_KEY" in found.what


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        _, found = examined(remote_url=url)
    assert found.state is State.PROBLEM
    assert url in found.what
    assert "curl" in found.fix


def test_a_plain_server_under_a_safe_name(server: str) -> None:
    _, found = examined(remote_url=server.replace("http:", "https:"))
    assert found.state is State.PROBLEM
    assert "memory.ca_file" in found.fix


def test_this_machine_is_not_the_guests_own(server: str) -> None:
    _, found = examined("container", remote_url=server)
    assert found.state is State.PROBLEM
    assert "the egress guest itself" in found.what


def test_a_way_that_others_can_read_is_a_warning() -> None:
    *_, found = examined("container", remote_url="http://memory.invalid:8080")
    assert found.state is State.WARNING
    assert "unencrypted to memory.invalid" in found.what
