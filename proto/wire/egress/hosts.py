"""Names and addresses of hosts, each in its one spelling."""

import ipaddress
import re
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
        raise ValueError("it is no name of a host")
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
        raise ValueError("it is no name of a host") from None


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
        raise ValueError("it is no address") from None
    if address.scope_id:
        raise ValueError("it is an address with a zone")
    if address.ipv4_mapped:
        raise ValueError(f"it is another spelling of {address.ipv4_mapped}")
    return str(address)
