"""To which IP addresses nobody may connect."""

import pytest
from wire.egress.hosts import networks, refusal

EVERYTHING = networks(("0.0.0.0/0", "::/0"))

PUBLIC = ["93.184.216.34", "8.8.8.8", "2606:2800:220:1:248:1893:25c8:1946"]

PRIVATE = [
    "127.0.0.1",
    "127.255.255.254",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "198.18.0.1",
    "192.0.2.1",
    "::1",
    "fc00::1",
    "fd12:3456::1",
    "2001:db8::1",
    "4000::1",
]

NEVER = [
    "169.254.169.254",
    "169.254.170.2",
    "169.254.0.1",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.192",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fe80::1",
    "fe80::a9fe:a9fe",
    "fe80::1%eth0",
    "224.0.0.1",
    "239.255.255.250",
    "ff02::1",
    "0.0.0.0",
    "0.1.2.3",
    "::",
    "240.0.0.1",
    "255.255.255.255",
    "::ffff:169.254.169.254",
    "::a9fe:a9fe",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    "2001:0:a9fe:a9fe::1",
    "2001:0:7f00:1::1",
    "2001:0:808:808:0:0:5601:5601",
    "fd00::5efe:a9fe:a9fe",
    "fd00::200:5efe:a9fe:a9fe",
    "::ffff:0.0.0.0",
    "no address",
    "2852039166",
    "",
]

INSIDE = [
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::7f00:1",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "64:ff9b:1::808:808",
    "2002:a00:1::1",
    "2002:7f00:1::1",
    "2606:2800:220:1:0:5efe:a00:1",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_ones_may_be_reached(address: str) -> None:
    assert refusal(address) == ""


@pytest.mark.parametrize("address", [*PRIVATE, *INSIDE])
def test_private_ones_only_in_private_networks(address: str) -> None:
    assert refusal(address) != ""
    assert refusal(address, EVERYTHING) == ""


@pytest.mark.parametrize("address", NEVER)
def test_some_never(address: str) -> None:
    assert refusal(address) != ""
    assert refusal(address, EVERYTHING) != ""


@pytest.mark.parametrize("address", ["::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_ones_in_other_clothes(address: str) -> None:
    assert refusal(address) == ""


def test_a_private_network_opens_no_other() -> None:
    own = networks(("10.1.0.0/16",))
    assert refusal("10.1.2.3", own) == ""
    assert refusal("::ffff:10.1.2.3", own) == ""
    assert refusal("10.2.2.3", own) == "it is private"
    assert refusal("127.0.0.1", own) == "it is this machine's own (loopback)"
    assert refusal("64:ff9b::a00:1", own) == "it is translated to 10.0.0.1: it is private"
