"""Identity, rights, namespaces and kernel, from what /proc says of a process."""

import os
import re

import pytest
from wire.boundary import KERNEL_OF_MACHINE

from shell_daemon.probe import kernel
from shell_daemon.probe.world import BoundaryHit
from tests.support.boundary.probed_guest import UID, ProbedGuest


def test_a_guest_as_it_should_be(guest: ProbedGuest) -> None:
    if UID == 0:
        guest.status(Uid="5\t5\t5\t5")
    guest.first_process()
    world = guest.look(uid=UID or 5)
    assert "gid 7" in kernel.identity(world)
    assert kernel.capabilities(world) == "none"
    assert kernel.no_new_privileges(world) == "set"
    assert kernel.seccomp(world, list) == "filtered, by the daemon and by the tier"


@pytest.mark.parametrize(
    ("field", "value", "found"),
    [
        ("Uid", "0\t0\t0\t0", "commands run as root (user id 0)"),
        ("Uid", "5\t5\t0\t5", "commands run as root (user id 0)"),
        ("Uid", "6\t6\t6\t6", "commands have the user ids [6] instead of 5"),
        ("Uid", "5\t6\t5\t5", "commands have the user ids [5, 6] instead of 5"),
        ("Gid", "0\t0\t0\t0", "commands run as root (group id 0)"),
        ("Groups", "7 998", "commands belong to further groups: [998]"),
    ],
)
def test_another_identity_is_a_hit(guest: ProbedGuest, field: str, value: str, found: str) -> None:
    guest.status(**{"Uid": "5\t5\t5\t5", field: value})
    with pytest.raises(BoundaryHit, match=re.escape(found)):
        kernel.identity(guest.look(uid=5))


def test_groups_that_a_user_namespace_cannot_drop_are_expected(guest: ProbedGuest) -> None:
    guest.status(Uid="5\t5\t5\t5", Groups="65534 65534 7")
    kernel.identity(guest.look(uid=5, groups=(65534,)))


@pytest.mark.parametrize("name", ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"])
def test_a_capability_in_any_set_is_a_hit(guest: ProbedGuest, name: str) -> None:
    guest.status(**{name: "0000000000200000"})
    with pytest.raises(BoundaryHit, match=f"{name} 0000000000200000"):
        kernel.capabilities(guest.look())


def test_missing_no_new_privileges_is_a_hit(guest: ProbedGuest) -> None:
    guest.first_process()
    assert kernel.no_new_privileges(guest.look())
    guest.first_process(no_new_privileges=0)
    with pytest.raises(BoundaryHit):
        kernel.no_new_privileges(guest.look())
    guest.first_process()
    guest.status(NoNewPrivs="0")
    with pytest.raises(BoundaryHit):
        kernel.no_new_privileges(guest.look())


def test_a_missing_filter_of_the_tier_is_a_hit_only_where_it_has_one(guest: ProbedGuest) -> None:
    guest.first_process(seccomp=0)
    assert kernel.seccomp(guest.look(seccomp=False), list) == "filtered by the daemon"
    with pytest.raises(BoundaryHit, match="around the guest, though this tier has one"):
        kernel.seccomp(guest.look(), list)


def test_commands_without_the_daemons_filter_are_a_hit(guest: ProbedGuest) -> None:
    guest.first_process()
    with pytest.raises(BoundaryHit, match="asked for keys: keyctl"):
        kernel.seccomp(guest.look(), lambda: ["keyctl"])
    guest.status(Seccomp="0")
    with pytest.raises(BoundaryHit, match="no system call filter around commands"):
        kernel.seccomp(guest.look(), list)


def test_a_namespace_of_the_host_is_a_hit(guest: ProbedGuest) -> None:
    guest.write("self/ns/pid", "")
    guest.write("self/ns/net", "")
    own = (guest.proc / "self/ns/pid").stat().st_ino
    with pytest.raises(BoundaryHit, match=r"^the pid namespace is the host's$"):
        kernel.namespaces(guest.look(namespaces={"pid": own, "net": 1}))
    assert kernel.namespaces(guest.look(namespaces={"pid": 1, "net": 1})) == "own pid, net"


def test_the_hosts_kernel_is_a_hit_only_where_there_must_be_another(guest: ProbedGuest) -> None:
    assert "shared with the host" in kernel.kernel(guest.look())
    with pytest.raises(BoundaryHit, match="same boot id"):
        kernel.kernel(guest.look(own_kernel=True))
    assert kernel.kernel(guest.look(own_kernel=True, boot_id="another")) == KERNEL_OF_MACHINE


def test_a_kernel_without_a_boot_id_is_a_hit(guest: ProbedGuest) -> None:
    guest.write("sys/kernel/random/boot_id", "")
    with pytest.raises(BoundaryHit):
        kernel.kernel(guest.look(own_kernel=True))


def test_numbers_of_the_hosts_kernel_mean_nothing_in_another(guest: ProbedGuest) -> None:
    guest.write("self/ns/pid", "")
    own = os.stat(guest.proc / "self/ns/pid").st_ino
    assert kernel.namespaces(guest.look(own_kernel=True, namespaces={"pid": own}))
