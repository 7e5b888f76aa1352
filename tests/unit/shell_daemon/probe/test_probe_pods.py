"""The checks in a guest that may be on another machine."""

import socket
from pathlib import Path

import pytest
from wire.boundary import KERNEL_OF_GVISOR, KERNEL_OF_MACHINE, POLICY, SharedDirectory
from wire.network_probe import POLICED, WAYS, Route, Spec, Target

from shell_daemon.probe import filesystem, kernel, mounts, network
from shell_daemon.probe import walk as walking
from shell_daemon.probe.world import BoundaryHit, Budget, Budgets
from tests.support.boundary.probed_guest import ProbedGuest

API = Target("10.96.0.1", 443, "the API server")
LOG = "40 26 254:0 /kubelet/pods/1/log /dev/termination-log rw - ext4 /dev/vda rw"
KUBELETS = [
    "29 20 0:25 / /run rw - tmpfs tmpfs rw",
    "30 26 0:48 / /dev/shm rw - tmpfs shm rw",
    "31 20 0:49 / /sys/firmware ro - tmpfs tmpfs ro",
    LOG,
]


@pytest.fixture
def pod(guest: ProbedGuest) -> ProbedGuest:
    """A shell pod on another machine, as it should be."""
    guest.share("/work")
    (guest.root / "dev").mkdir()
    (guest.root / "dev/termination-log").touch(0o666)
    for line in KUBELETS:
        guest.mount(line)
    guest.spec = guest.spec._replace(
        remote=True,
        network=POLICY,
        forbidden=(API,),
        shared=(SharedDirectory("/work", True, 0, 0),),
        boot_id="boot-of-the-runner",
    )
    return guest


def test_what_every_kubelet_adds_passes(pod: ProbedGuest) -> None:
    assert mounts.mounts(pod.look()) == "/work and nothing else of the host"


def test_on_the_runners_own_machine_its_numbers_count(pod: ProbedGuest) -> None:
    with pytest.raises(BoundaryHit, match="/run is mounted from /"):
        mounts.mounts(pod.look(boot_id="boot-of-the-host"))


@pytest.mark.parametrize(
    "line",
    [
        "50 29 0:60 / /run/secrets/kubernetes.io/serviceaccount ro - tmpfs tmpfs rw",
        "50 20 0:60 / /etc/config ro - tmpfs tmpfs rw",
        "50 20 254:1 / /state rw - ext4 /dev/vdb rw",
        "50 20 254:1 /etc /host ro - ext4 /dev/vdb rw",
        "50 29 0:61 /containerd.sock /run/containerd.sock rw - tmpfs tmpfs rw",
        "50 20 0:25 /secrets /run rw - tmpfs tmpfs rw",
    ],
)
def test_any_other_mount_is_a_hit(pod: ProbedGuest, line: str) -> None:
    pod.mount(line)
    with pytest.raises(BoundaryHit, match=f"{line.split()[4]} is mounted from"):
        mounts.mounts(pod.look())


def test_a_directory_in_place_of_the_kubelets_file_is_a_hit(pod: ProbedGuest) -> None:
    (pod.root / "dev/termination-log").unlink()
    (pod.root / "dev/termination-log").mkdir()
    with pytest.raises(BoundaryHit, match="is not a file"):
        mounts.mounts(pod.look())


def test_a_volume_that_is_not_mounted_is_a_hit(pod: ProbedGuest) -> None:
    pod.mountinfo = [line for line in pod.mountinfo if " /work " not in line]
    with pytest.raises(BoundaryHit, match="/work is not mounted"):
        mounts.mounts(pod.look())


def test_elsewhere_a_row_without_numbers_is_a_hit(guest: ProbedGuest) -> None:
    """Only where the runner cannot know them may they be missing."""
    guest.share("/work")
    with pytest.raises(BoundaryHit, match="another directory"):
        mounts.mounts(guest.look(shared=(SharedDirectory("/work", True, 0, 0),)))


def _namespaces(pod: ProbedGuest, pid: Path) -> None:
    for kind in ("ipc", "uts", "pid"):
        (pod.proc / "self/ns" / kind).touch()
    (pod.proc / "self/ns/pid").unlink()
    (pod.proc / "self/ns/pid").symlink_to(pid)


def test_namespaces_of_another_machine_are_known_by_their_numbers(
    pod: ProbedGuest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    itself = tmp_path / "namespace"
    itself.touch()
    _namespaces(pod, itself)
    assert kernel.namespaces(pod.look()) == "own ipc, uts, pid"
    monkeypatch.setitem(kernel.OF_THE_NODE, "pid", itself.stat().st_ino)
    with pytest.raises(BoundaryHit, match="the pid namespace is the host's"):
        kernel.namespaces(pod.look())


def test_namespaces_of_the_runners_machine_are_compared(pod: ProbedGuest, tmp_path: Path) -> None:
    itself = tmp_path / "namespace"
    itself.touch()
    _namespaces(pod, itself)
    runners = {"pid": itself.stat().st_ino}
    assert kernel.namespaces(pod.look(namespaces=runners))
    with pytest.raises(BoundaryHit, match="the pid namespace is the host's"):
        kernel.namespaces(pod.look(namespaces=runners, boot_id="boot-of-the-host"))


def test_another_boot_id_alone_shows_no_kernel_of_its_own(pod: ProbedGuest) -> None:
    """It may be the kernel of another machine."""
    with pytest.raises(BoundaryHit, match="nothing shows"):
        kernel.kernel(pod.look(own_kernel=True))
    pod.mount("60 20 0:70 /hosts /etc/hosts rw - virtiofs kataShared rw")
    assert kernel.kernel(pod.look(own_kernel=True)) == KERNEL_OF_MACHINE


def test_gvisor_is_known_by_what_it_says(pod: ProbedGuest) -> None:
    boot_id = pod.spec.boot_id
    pod.in_gvisor()
    assert kernel.kernel(pod.look(boot_id=boot_id)) == KERNEL_OF_GVISOR


def test_too_much_in_a_volume_keeps_no_shell_from_starting(pod: ProbedGuest) -> None:
    for number in range(20):
        (pod.root / "work" / str(number)).touch()
    world = pod.look(budgets=Budgets(users=Budget(10, 9), own=Budget(100, 9)))
    assert walking.walk(world).unfinished == {}
    assert "the walk of /work did not end" in network.unix_sockets(world)
    assert filesystem.private_paths(world)


def test_too_much_in_run_is_a_hit_in_pods_too(pod: ProbedGuest) -> None:
    (pod.root / "run").mkdir()
    for number in range(20):
        (pod.root / "run" / str(number)).touch()
    world = pod.look(budgets=Budgets(users=Budget(100, 9), own=Budget(10, 9)))
    with pytest.raises(BoundaryHit, match="/run did not end"):
        network.unix_sockets(world)


def test_a_socket_in_the_volume_that_is_served_outside_is_a_hit(
    pod: ProbedGuest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walking, "is_served_outside", lambda _: True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(pod.root / "work/engine.sock"))
        with pytest.raises(BoundaryHit, match=r"/work/engine\.sock is served from outside"):
            network.unix_sockets(pod.look())


@pytest.mark.parametrize("way", WAYS)
def test_each_open_way_is_a_hit_of_its_own_check(
    pod: ProbedGuest, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    asked: list[Spec] = []

    def try_all(spec: Spec, _proc: object) -> list[Route]:
        asked.append(spec)
        return [Route(name, name != way, f"{name} leads out" * (name == way)) for name in WAYS]

    monkeypatch.setattr(network, "try_all", try_all)
    world = pod.look()
    hits = []
    for check in (network.network, network.policies, network.metadata_address):
        try:
            check(world)
        except BoundaryHit as hit:
            hits.append((check, str(hit)))
    expected = network.policies if way in POLICED else network.network
    expected = network.metadata_address if way == "metadata" else expected
    assert hits == [(expected, f"{way} leads out")]
    assert asked == [Spec(policed=True, forbidden=(API,))]


def test_a_guest_without_a_network_has_no_policies(guest: ProbedGuest) -> None:
    with pytest.raises(BoundaryHit, match="no network"):
        network.policies(guest.look())
