"""How commands get out: a port each, while egress is set, and nothing otherwise."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from wire.egress.forwarder import refusal_in
from wire.errors import Code, WireError
from wire.identity import Party
from wire.v1 import shell_pb2

from runner.host.authority import Authority
from shell_daemon.command_network import CommandNetwork
from shell_daemon.limits import Settings
from tests.support import parties
from tests.support.guests.egress_listener import TOKEN, fake_egress
from tests.support.guests.shell_backends import Daemon, Guest, OverGrpc, ready_daemon

CURL = "curl -sS --max-time 30 -w ' %{http_code}' "
URL = "http://files.example.org/a"


class Pair:
    """A daemon as its runner and its agent see it."""

    def __init__(self, daemon: Daemon, runner: OverGrpc, agent: OverGrpc) -> None:
        self.root = daemon.root
        self.runner = runner
        self.guest = Guest(agent, daemon.root)

    async def set(self, request: shell_pb2.SetEgressRequest) -> None:
        await self.runner.call("SetEgress", request)

    async def says(self, command: str, **fields: str) -> str:
        """What a command writes."""
        ran = await self.guest.run(os.urandom(8).hex(), command, **fields)
        return (ran.stdout + ran.stderr).decode().strip()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with ready_daemon() as daemon:
        runner, agent = daemon.channel(Party.RUNNER), daemon.channel()
        async with runner, agent:
            await daemon.ready(agent)
            yield Pair(daemon, OverGrpc(runner), OverGrpc(agent))


async def test_without_a_listener_there_is_no_proxy(pair: Pair) -> None:
    assert "roxy" not in (await pair.says("env")).lower()


async def test_only_the_runner_says_how_commands_get_out(pair: Pair) -> None:
    with pytest.raises(WireError) as refused:
        await pair.guest.api.call("SetEgress", shell_pb2.SetEgressRequest())
    assert refused.value.code is Code.PERMISSION_DENIED


async def test_a_request_reaches_the_listener_with_its_session_and_turn(pair: Pair) -> None:
    async with fake_egress(pair.root) as listener:
        await pair.set(listener.request())
        said = await pair.says(CURL + URL, session_id="chat-1", turn_id="turn-7")
        assert said == "hello 200"
        assert listener.greetings == [f"OXYDRA/1 {TOKEN} chat-1 turn-7\r\n"]
        assert await pair.says(CURL + URL) == "hello 200"
        assert listener.greetings[1:] == [f"OXYDRA/1 {TOKEN} - -\r\n"]


REFUSAL = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"oxydra-refused: policy\r\nContent-Length: 44\r\n\r\n"
    b"egress: files.example.org is not allowed: no\n"
)


async def test_why_something_did_not_go_out_is_told_whatever_the_client_says(pair: Pair) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(REFUSAL)

    async with fake_egress(pair.root, refuse) as listener:
        await pair.set(listener.request())
        quiet = "curl -s --max-time 30 https://files.example.org/ 2>/dev/null"
        assert await pair.says(f"{quiet}; {quiet}") == (
            "oxydra: egress: files.example.org is not allowed: no"
        )


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (REFUSAL, "egress: files.example.org is not allowed: no"),
        (b"HTTP/1.1 503 x\r\nOxydra-Refused: not_ready\r\n\r\n", "egress: refused (not_ready)"),
        (b"HTTP/1.1 200 OK\r\n\r\n\r\noxydra-refused: policy\r\n\r\nno", ""),
        (b"HTTP/1.1 403 x\r\nx: oxydra-refused: policy\r\n\r\n", ""),
        (b"HTTP/1.1 403 x\r\noxydra-refused: a\r\n\r\n\x1b[2Jx\xff", "\\x1b[2Jx\ufffd"),
        (b"\x16\x03\x01", ""),
        (b"", ""),
    ],
)
def test_a_refusal_is_told_from_an_answer(answer: bytes, why: str) -> None:
    assert refusal_in(answer) == why


async def test_the_port_and_its_connections_end_with_the_command(pair: Pair) -> None:
    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with fake_egress(pair.root, wait) as listener:
        await pair.set(listener.request())
        keep = "exec 3<>/dev/tcp/127.0.0.1/${http_proxy##*:}; echo GET >&3; echo $http_proxy >port;"
        await pair.guest.start("a", f"{keep} sleep 1000")
        port = (await pair.guest.appears("port")).rpartition(":")[2]
        async with asyncio.timeout(60):
            while not listener.open:
                await asyncio.sleep(0.01)
            await pair.guest.cancel("a")
            while listener.open:
                await asyncio.sleep(0.01)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", int(port))


async def test_an_empty_listener_closes_the_way_out_again(pair: Pair) -> None:
    async with fake_egress(pair.root) as listener:
        await pair.set(listener.request(environment={"TOKEN": "placeholder"}))
        running = f"until [ -e go ]; do sleep 0.01; done; {CURL + URL}"
        await pair.guest.start("a", running)
        await pair.set(shell_pb2.SetEgressRequest())
        pair.guest.let_go()
        assert b"no way out of this guest is configured" in (await pair.guest.collect("a")).stdout
        assert listener.greetings == []
    assert await pair.says("echo $http_proxy$TOKEN") == ""


async def test_no_listener_is_an_answer_that_says_so(pair: Pair) -> None:
    listener = shell_pb2.SetEgressRequest(door=f"unix:{pair.root}/http.sock", token=TOKEN)
    await pair.set(listener)
    why = "nothing can leave this guest now: egress is starting, or does not run"
    assert await pair.says(CURL + URL) == f"{why}\n 503oxydra: {why}"
    said = await pair.says("curl -sS https://files.example.org/")
    assert "503" in said


@pytest.mark.parametrize("other", [Party.AGENT, None])
async def test_nothing_is_sent_to_what_is_not_egress(pair: Pair, other: Party | None) -> None:
    strange = parties.identity(other) if other else Authority.new().issue(Party.EGRESS)
    async with fake_egress(pair.root, identity=strange) as listener:
        await pair.set(listener.request())
        assert "is not egress" in await pair.says(CURL + URL)
        assert listener.greetings in ([], [""])


async def test_a_large_answer_and_a_large_request_arrive_whole(pair: Pair) -> None:
    size = 30_000_000
    taken = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        await reader.readuntil(b"\r\n\r\n")
        while taken < size:
            taken += len(await reader.read(1 << 20))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(30):
            writer.write(b"a" * 1_000_000)
            await writer.drain()

    async with fake_egress(pair.root, serve) as listener:
        await pair.set(listener.request())
        send = f"head -c {size} /dev/zero | curl -sS -H Expect: --data-binary @- {URL} | wc -c"
        assert await pair.says(send) == str(size)
    assert taken == size


async def test_a_client_that_has_said_all_still_gets_its_answer(pair: Pair) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        await asyncio.sleep(0.3)
        writer.write(b"late")

    script = (
        "import os, socket; s = socket.create_connection(('127.0.0.1', "
        "int(os.environ['http_proxy'].rpartition(':')[2]))); s.sendall(b'all\\n'); "
        "s.shutdown(socket.SHUT_WR); print(s.recv(100), s.recv(100))"
    )
    async with fake_egress(pair.root, serve) as listener:
        await pair.set(listener.request())
        assert await pair.says(f'python3 -c "{script}"') == "b'late' b''"


async def test_a_refusal_in_the_middle_of_a_request_is_read(pair: Pair) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
        while await reader.read(1 << 20):  # as the real listener, which lets a client finish
            pass

    async with fake_egress(pair.root, refuse) as listener:
        await pair.set(listener.request())
        send = f"head -c 5000000 /dev/zero | {CURL} -H Expect: --data-binary @- {URL}"
        assert await pair.says(send) == "no 403"


async def test_many_requests_at_once(pair: Pair) -> None:
    async with fake_egress(pair.root) as listener:
        await pair.set(listener.request())
        many = f"for i in $(seq 300); do echo {URL}; done | xargs -P 50 -n 6 curl -sS"
        assert await pair.says(many) == "hello" * 300


async def test_commands_trust_the_authority_besides_the_systems(pair: Pair) -> None:
    authority = Authority.new().public
    async with fake_egress(pair.root) as listener:
        await pair.set(listener.request(authority_pem=authority))
        bundle = Path(await pair.says("echo $SSL_CERT_FILE"))
        assert bundle.read_text().endswith(authority)
        assert bundle.read_text().count("BEGIN CERTIFICATE") > 1
        one = await pair.says("env | grep -c =$SSL_CERT_FILE$")
        assert int(one) == 8
        await pair.set(listener.request())
        assert await pair.says("echo $SSL_CERT_FILE") == ""


async def test_no_name_that_a_command_takes_first_keeps_certificates_out(tmp_path: Path) -> None:
    """The next bundle has another name than any before it, and commands that run keep theirs."""
    for name in ("shared", "tmp", "run"):
        (tmp_path / name).mkdir()
    settings = Settings(tmp_path / "shared", tmp_path / "tmp", tmp_path / "run")
    outside = CommandNetwork(settings, parties.identity(Party.SHELL))
    made: list[Path] = []
    for _ in range(6):
        for known in (*made, tmp_path / "run/oxydra-certificates.pem"):
            if not known.is_dir():
                known.unlink(missing_ok=True)
                known.mkdir()
        authority = Authority.new().public
        outside.set(
            shell_pb2.SetEgressRequest(
                door="unix:/x",
                token="t" * 20,
                door_launch_id="0" * 8,
                authority_pem=authority,
            )
        )
        with outside.opened("", "", lambda _: None) as variables:
            bundle = Path(variables["SSL_CERT_FILE"])
        assert bundle.read_text().endswith(authority)
        assert bundle not in made
        made.append(bundle)
    (tmp_path / "run").rename(tmp_path / "gone")
    with pytest.raises(WireError, match="certificates for commands cannot be written"):
        outside.set(
            shell_pb2.SetEgressRequest(
                door="unix:/x", token="t" * 20, door_launch_id="0" * 8, authority_pem=authority
            )
        )


async def test_files_and_variables_of_commands_are_replaced(pair: Pair) -> None:
    async with fake_egress(pair.root) as listener:
        files = {".netrc": b"one", ".config/tool/token": b"two"}
        await pair.set(listener.request(environment={"GITHUB_TOKEN": "p1"}, files=files))
        said = await pair.says(
            "cd ~; cat .netrc .config/tool/token; stat -c %a .netrc; echo $GITHUB_TOKEN"
        )
        assert said == "onetwo600\np1"
        await pair.set(listener.request(files={".netrc": b"new"}))
        said = await pair.says("cd ~; cat .netrc; ls .config/tool; echo $GITHUB_TOKEN")
        assert said == "new"


async def test_the_next_daemon_removes_the_files_of_the_last(pair: Pair) -> None:
    async with fake_egress(pair.root) as listener:
        await pair.set(listener.request(files={".netrc": b"one", ".config/token": b"two"}))
    (pair.root / "tmp/mine").write_text("a user's")
    CommandNetwork(
        Settings(pair.root / "shared", pair.root / "tmp"), parties.identity(Party.SHELL)
    ).clear()
    left = [path.name for path in (pair.root / "tmp").rglob("*") if path.is_file()]
    assert left == ["mine"]


async def test_a_home_may_be_a_link_of_the_image_but_what_it_names_no_link(tmp_path: Path) -> None:
    """In a pod, /tmp of the read-only image is a link into the volume."""
    for name in ("shared", "volume", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "tmp").symlink_to("volume")
    outside = CommandNetwork(
        Settings(tmp_path / "shared", tmp_path / "tmp"), parties.identity(Party.SHELL)
    )
    outside.set(shell_pb2.SetEgressRequest(files={".netrc": b"one"}))
    assert (tmp_path / "volume/.netrc").read_bytes() == b"one"
    (tmp_path / "volume").rename(tmp_path / "moved")
    (tmp_path / "volume").symlink_to("elsewhere")
    with pytest.raises(WireError, match="the home of commands cannot be opened"):
        outside.set(shell_pb2.SetEgressRequest(files={".netrc": b"two"}))
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("spoilt", [b"../shared/x", b"\xff", b"", b"/etc/passwd\n.netrc"])
async def test_a_list_that_a_command_has_spoilt_removes_nothing_else(
    pair: Pair, spoilt: bytes
) -> None:
    (pair.root / "shared/x").write_text("a user's")
    (pair.root / "tmp/.oxydra-files").write_bytes(spoilt)
    async with fake_egress(pair.root) as listener:
        await pair.set(listener.request(files={".netrc": b"one"}))
    assert (pair.root / "shared/x").exists()
    assert await pair.says("cat ~/.netrc ~/.oxydra-files") == "one.netrc"


async def test_links_that_commands_put_in_the_way_lead_nowhere(pair: Pair, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    await pair.says(f"cd ~; ln -s {victim} .netrc; ln -s {tmp_path} .config")
    async with fake_egress(pair.root) as listener:
        await pair.set(listener.request(files={".netrc": b"one", ".config/victim": b"two"}))
    assert victim.read_text() == "mine"
    assert await pair.says("cat ~/.netrc") == "one"


@pytest.mark.parametrize(
    "fields",
    [
        {"door": "tcp:10.0.0.9:1", "token": TOKEN},
        {"door": "unix:http.sock", "token": TOKEN},
        {"door": "unix:/http.sock", "token": "short"},
        {"door": "unix:/http.sock", "token": TOKEN, "files": {"../x": b""}},
        {"door": "unix:/http.sock", "token": TOKEN, "files": {"/etc/x": b""}},
        {"door": "unix:/http.sock", "token": TOKEN, "environment": {"A=B": ""}},
    ],
)
async def test_what_can_never_work_is_refused(pair: Pair, fields: Any) -> None:
    with pytest.raises(WireError) as refused:
        await pair.set(shell_pb2.SetEgressRequest(**fields))
    assert refused.value.code is Code.INVALID_ARGUMENT


async def test_a_session_that_would_break_the_line_is_refused(pair: Pair) -> None:
    with pytest.raises(WireError) as refused:
        await pair.guest.start("a", "true", session_id="a b\r\nx")
    assert refused.value.code is Code.INVALID_ARGUMENT
