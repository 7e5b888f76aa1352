"""Names and addresses of hosts, each in its one spelling; which addresses may be connected to."""

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_NAME_CHARS_MAX: Final = 253
_TWO_READINGS: Final = frozenset("ßς\u200c\u200d")
"""Letters that older and newer rules for international names turn into different names."""


def canonical(host: str) -> str:
    """The one spelling of a host: a name in small letters, international ones as A-labels
    ("xn--…") and without a dot at the end; an IPv4 address as four decimal numbers; an IPv6 address
    in its short form and without brackets.

    Raises `ValueError` that says what is wrong. That is everything that programs understand in more
    than one way: addresses written as one number, in octal, in hexadecimal or with fewer than four
    parts, IPv4 inside of IPv6, and addresses with zones.
    """
    if host.startswith("[") and host.endswith("]"):
        return _address_6(host[1:-1])
    if host.count(":") > 1:
        return _address_6(host)
    name = host.removesuffix(".")
    if not name.isascii():
        name = _a_labels(name)
    name = name.lower()
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _address_4(name)
    if len(name) > _NAME_CHARS_MAX or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("it is not a host name")
    return name


def is_address(host: str) -> bool:
    """Whether a host in its one spelling is an IP address."""
    return ":" in host or bool(_NUMBER.fullmatch(host.rpartition(".")[2]))


def shown(host: str, port: int) -> str:
    """`host:port` as in a URL; without the port if that is 0."""
    name = f"[{host}]" if ":" in host else host
    return f"{name}:{port}" if port else name


def _a_labels(name: str) -> str:
    if _TWO_READINGS & set(name):
        raise ValueError('programs turn this name into different ones; write its "xn--" form')
    try:
        return name.encode("idna").decode("ascii")
    except UnicodeError:
        raise ValueError("it is not a host name") from None


def _address_4(text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise ValueError(
            "it is another spelling of an address; addresses are four decimal numbers"
        ) from None


def _address_6(text: str) -> str:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        raise ValueError("it is not an address") from None
    if address.scope_id:
        raise ValueError("it is an address with a zone")
    if address.ipv4_mapped:
        raise ValueError(f"it is another spelling of {address.ipv4_mapped}")
    return str(address)


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_METADATA: Final = frozenset(
    ipaddress.ip_address(each)
    for each in (
        "100.100.100.200",  # Alibaba Cloud
        "168.63.129.16",  # Azure
        "192.0.0.192",  # Oracle Cloud
        "fd00:ec2::254",  # Amazon Web Services
        "fd00:ec2::23",
        "fd20:ce::254",  # Google Cloud
    )
)
"""Where clouds tell their machines' keys, besides link-local addresses."""

_EVERYWHERE: Final = ipaddress.IPv6Network("2000::/3")
"""All IPv6 addresses that can be reached from elsewhere."""

PRIVATE: Final = "it is private"
"""What `refusal` ends with for addresses that `private_networks` is meant for."""

_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
_TRANSLATED_HERE: Final = ipaddress.IPv6Network("64:ff9b:1::/48")
_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")
_IN_AN_INTERFACE: Final = frozenset((0x0000_5EFE, 0x0200_5EFE))


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks from their notation as "10.1.0.0/16". Raises `ValueError`."""
    return tuple(ipaddress.ip_network(each) for each in texts)


def refusal(address: str, private_networks: Iterable[Network] = (), own: Iterable[str] = ()) -> str:
    """Why nobody may connect to an IP address; empty if they may.

    Public addresses may be connected to, but for the `own` ones of the host, and others in
    `private_networks`. Metadata addresses of clouds, link-local, multicast, unspecified and
    reserved ones never may. An IPv4 address inside an IPv6 address (mapped, 6to4, Teredo, NAT64,
    ISATAP) must be one that may be connected to.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "it is not an address"
    private = tuple(private_networks)
    ours = frozenset(map(ipaddress.ip_address, own))
    if isinstance(parsed, ipaddress.IPv4Address):
        return _refusal(parsed, private, ours)
    if parsed.scope_id:
        return "it is an address with a zone"
    for inner, what in _inside(parsed):
        if why := _refusal(inner, private, ours):
            return f"{what} {inner}: {why}"
    if parsed.ipv4_mapped or parsed in _TRANSLATED:
        return ""
    return _refusal(parsed, private, ours)


def _refusal(address: Address, private: tuple[Network, ...], own: frozenset[Address]) -> str:
    if address in _METADATA:
        return "it is a cloud's metadata address"
    for never, what in (
        (address.is_link_local, "link-local, as metadata addresses are"),
        (address.is_multicast, "for multicast"),
        (address.is_unspecified, "no machine's"),
    ):
        if never:
            return f"it is {what}"
    if isinstance(address, ipaddress.IPv4Address) and (address.is_reserved or _is_zero(address)):
        return "it is reserved"
    if any(address in network for network in private):
        return ""
    if address.is_loopback:
        return "it is this machine's own (loopback)"
    if address in own:
        return "it is this machine's own"
    if not address.is_global:
        return PRIVATE
    if isinstance(address, ipaddress.IPv6Address) and address not in _EVERYWHERE:
        return "it is reserved"
    return ""


def _is_zero(address: ipaddress.IPv4Address) -> bool:
    """Whether it is in 0.0.0.0/8, which means this machine."""
    return int(address) >> 24 == 0


def _inside(address: ipaddress.IPv6Address) -> Iterable[tuple[ipaddress.IPv4Address, str]]:
    """The IPv4 addresses that lie in an IPv6 address, and what it is to them."""
    low = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    if address.ipv4_mapped:
        yield address.ipv4_mapped, "it stands for"
    elif address in _TRANSLATED or address in _TRANSLATED_HERE:
        yield low, "it is translated to"
    elif address.sixtofour:
        yield address.sixtofour, "it leads to"
    elif address.teredo:
        for each in address.teredo:
            yield each, "it leads to"
    elif address in _COMPATIBLE and int(address) > 1:
        yield low, "it stands for"
    if (int(address) >> 32) & 0xFFFF_FFFF in _IN_AN_INTERFACE:
        yield low, "it leads to"
