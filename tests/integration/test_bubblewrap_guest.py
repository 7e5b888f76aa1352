"""The shell guest of the process tier, as a command inside it finds it."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from wire.errors import Code

from runner.config.models import Config
from runner.errors import TierError
from runner.host.launch import ShellLauncher
from runner.tiers.base import LaunchSpec, Limits, Network
from runner.tiers.process import prologue
from runner.tiers.process.bubblewrap import GUEST_UID, Bubblewrap
from runner.tiers.process.cgroup import Cgroup, ControlGroups
from runner.tiers.process.driver import ProcessDriver
from runner.workspace.mounts import MOUNTS, Access, Role
from runner.workspace.workspace import Workspace
from tests.support import parties
from tests.support.boundary.two_hosts import operators_key

pytestmark = pytest.mark.bubblewrap
GUARD_S = 60


class Inside:
    """Runs one script as the shell guest, through the driver, to its end."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.driver = ProcessDriver()
        launcher = ShellLauncher(Config(), workspace, self.driver.capabilities, parties.AUTHORITY)
        self.spec: LaunchSpec = launcher.prepare().spec

    async def run(self, script: str, limits: Limits | None = None) -> str:
        spec = replace(
            self.spec,
            command=("sh", "-c", script),
            limits=limits or self.spec.limits,
            launch_id=os.urandom(8).hex(),
        )
        handle = await self.driver.start(spec)
        try:
            await asyncio.wait_for(self.driver.wait(handle), GUARD_S)
        finally:
            await self.driver.stop(handle, 0)
        text = self.workspace.log(Role.SHELL).read_text()
        self.workspace.log(Role.SHELL).unlink()
        return text


@pytest.fixture
async def inside() -> AsyncIterator[Inside]:
    root = Path(tempfile.mkdtemp(dir="/tmp", prefix="bw-"))
    workspace = Workspace(root, "alice")
    workspace.provision()
    (workspace.internal / "memory.db").write_text("precious")
    yield Inside(workspace)
    shutil.rmtree(root)


async def test_the_mount_table_holds_cell_by_cell(inside: Inside) -> None:
    wanted = {mount.virtual: mount.directory for mount in MOUNTS[Role.SHELL]}
    lines = (await inside.run("cat /proc/self/mountinfo")).splitlines()
    found = {words[4]: words[3] for words in (line.split() for line in lines)}
    source = {path: found[path].removeprefix(str(inside.workspace.path) + "/") for path in wanted}
    assert source == wanted
    ours = [root for root in found.values() if root.startswith(str(inside.workspace.root))]
    assert len(ours) == len(wanted)
    written = await inside.run(
        "for d in " + " ".join(wanted) + "; do { echo x > $d/probe; } 2>/dev/null && echo $d; done"
    )
    writable = {each.virtual for each in MOUNTS[Role.SHELL] if each.access is Access.READ_WRITE}
    assert set(written.split()) == writable
    assert (inside.workspace.path / "ipc" / "shell" / "probe").exists()
    assert not (inside.workspace.path / "ipc" / "probe").exists()


async def test_it_has_no_rights_no_network_and_no_way_to_get_any(inside: Inside) -> None:
    status = await inside.run("cat /proc/self/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert {fields[f"Cap{each}"] for each in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert fields["NoNewPrivs"] == "1"
    assert fields["Uid"].split() == [str(GUEST_UID)] * 4
    interfaces = await inside.run("tail -n +3 /proc/net/dev | cut -d: -f1")
    assert interfaces.split() == ["lo"]
    nested = await inside.run("unshare --user --map-root-user true; echo $?")
    assert nested.splitlines()[-1] != "0"


async def test_its_session_keyring_is_not_the_operators() -> None:
    operators_key("a key of the operator")
    read = (
        "from ctypes import *; text = create_string_buffer(96); libc = CDLL(None); "
        "print(libc.syscall(c_long(250), c_long(11), c_long(-3), text, c_long(96)))"
    )
    command = [sys.executable, "-c", read]
    plain, emptied = [
        subprocess.run(words, capture_output=True, text=True, check=True).stdout
        for words in (command, prologue.begun(command))
    ]
    assert int(plain) >= 4
    assert int(emptied) == 0


def test_on_a_machine_of_another_kind_there_is_no_shell() -> None:
    assert prologue.unknown_machine() == ""
    assert prologue.unknown_machine("vax") == (
        "shell guests run on x86_64 and aarch64 machines with a 64-bit Python only"
    )
    assert prologue.unknown_machine("i686")


async def test_the_kernels_settings_cannot_be_changed(inside: Inside) -> None:
    tried = (
        "for f in /proc/sys/kernel/core_pattern /proc/sys/kernel/hostname /usr/x /x /dev/x /etc/x "
        "/proc/sysrq-trigger; do (echo x > $f) 2>/dev/null && echo changed $f; done; echo done"
    )
    assert (await inside.run(tried)).split() == ["done"]


async def test_nothing_of_the_host_but_programs_is_there(inside: Inside) -> None:
    listed = (await inside.run(f"ls -a / /etc /home /root {inside.workspace.path} 2>&1")).split()
    assert ".oxydra" not in listed
    assert not {"shadow", "hosts", "machine-id", "ssh", "hostname"} & set(listed)
    found = await inside.run("find / -name memory.db -not -path '/proc/*' 2>/dev/null; echo end")
    assert found.split() == ["end"]


async def test_its_environment_is_what_the_launch_says(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    names = {line.split("=")[0] for line in (await inside.run("env")).splitlines()}
    assert names <= {"PATH", "HOME", "PYTHONUTF8", "GRPC_VERBOSITY", "PWD", "OLDPWD", "_", "SHLVL"}


async def test_one_process_cannot_take_all_memory(inside: Inside) -> None:
    grab = "python3 -c 'x = bytearray(1 << 30); print(len(x))' || echo refused"
    small = Limits(memory_bytes=256 << 20)
    assert "refused" in await inside.run(grab, small)
    assert str(1 << 30) in await inside.run(grab, Limits(memory_bytes=2 << 30))


@pytest.mark.root
async def test_all_processes_together_are_limited(inside: Inside) -> None:
    assert ControlGroups().reason == "", "this machine gives root no control groups"
    bomb = "for i in $(seq 200); do sleep 20 & done 2>&1; jobs -p | wc -l"
    output = await inside.run(bomb, Limits(processes=40))
    assert "fork" in output.lower()
    grab = """(python3 -c 'x = b"x" * (150 << 20); import time; time.sleep(3)'; echo ended $?) & """
    together = await inside.run(grab * 4 + "wait", Limits(memory_bytes=300 << 20))
    assert "ended 137" in together


@pytest.mark.root
async def test_without_control_groups_it_is_said_and_the_guest_watches_itself(
    inside: Inside, tmp_path: Path
) -> None:
    without = ProcessDriver(groups=ControlGroups(tmp_path))
    assert not without.capabilities.limits_memory
    (notice,) = await without.check()
    assert "no control group belongs to this account" in notice
    assert "Delegate=yes" in notice
    assert inside.driver.capabilities.limits_memory
    assert await inside.driver.check() == []


@pytest.mark.root
async def test_limits_that_were_promised_and_cannot_be_set_fail_the_start(
    inside: Inside, tmp_path: Path
) -> None:
    class Vanishing(ControlGroups):
        def create(self, name: str, limits: Limits) -> Cgroup:
            if name.startswith("try"):
                return super().create(name, limits)
            raise OSError("it is gone")

    with pytest.raises(TierError, match="memory cannot be limited any more"):
        await ProcessDriver(groups=Vanishing()).start(inside.spec)


async def test_stop_takes_everything_along(inside: Inside) -> None:
    script = "(setsid sleep 1000 &); (setsid setsid sleep 1001 &); echo up; sleep 1002"
    spec = replace(inside.spec, command=("sh", "-c", script))
    handle = await inside.driver.start(spec)
    async with asyncio.timeout(GUARD_S):
        while "up" not in inside.workspace.log(Role.SHELL).read_text():
            await asyncio.sleep(0.02)
    family = psutil.Process((await inside.driver.inspect(handle)).pid).children(recursive=True)
    assert len(family) >= 3
    await inside.driver.stop(handle, 0)
    gone, alive = psutil.wait_procs(family, timeout=GUARD_S)
    assert len(gone) == len(family)
    assert not alive


async def test_a_network_is_refused_because_there_is_only_the_hosts(inside: Inside) -> None:
    with pytest.raises(TierError, match="gives the shell no network") as raised:
        await inside.driver.start(replace(inside.spec, network=Network.OUTBOUND))
    assert raised.value.code is Code.FAILED_PRECONDITION
    assert "--tier container" in raised.value.resolution


async def test_programs_that_commands_could_change_confine_nobody(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(inside.workspace.path / "shared" / "venv"))
    with pytest.raises(TierError, match="commands could change the programs") as raised:
        await inside.driver.start(inside.spec)
    assert "which is /shared in the shell guest" in raised.value.details
    assert "outside of every workspace" in raised.value.resolution


@pytest.mark.parametrize("above", ["/var/tmp", "/tmp", "/dev/shm"])
async def test_programs_may_lie_where_the_guest_has_a_directory_of_its_own(
    inside: Inside, monkeypatch: pytest.MonkeyPatch, above: str
) -> None:
    with tempfile.TemporaryDirectory(dir=above) as place:
        monkeypatch.setattr(sys, "prefix", place)
        (Path(place) / "program").write_text("echo runs")
        said = await inside.run(f"sh {place}/program; cd {place} && touch x")
    assert said.startswith("runs\n")
    assert "Read-only file system" in said


def test_without_bubblewrap_the_reason_says_how_to_get_it() -> None:
    assert "apt-get install bubblewrap" in Bubblewrap("").reason
    reasons = ProcessDriver(Bubblewrap("")).capabilities.unsupported
    assert "apt-get install bubblewrap" in reasons[Role.SHELL]


@pytest.mark.parametrize(
    ("says", "fix"),
    [
        ("bwrap: Unknown option --disable-userns", "0.8 or newer"),
        ("bwrap: setting up uid map: Permission denied", "sysctl kernel."),
        ("", "it says nothing"),
    ],
)
def test_a_bubblewrap_that_does_not_work_is_no_shell(tmp_path: Path, says: str, fix: str) -> None:
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit 1\n" if says else "#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    assert fix in Bubblewrap(str(program)).reason
    assert "no shell" in Bubblewrap(str(program)).reason
