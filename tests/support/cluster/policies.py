"""NetworkPolicies, as rules of iptables between the addresses of pods.

A pod that a policy selects may only do what one of its policies lists, in each direction that they
name. Addresses of this machine that pods connect to count as addresses outside. What this machine
sends to pods is always let through, as kubelets are.
"""

import ipaddress
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True)
class PodAddress:
    """A pod, as policies see it."""

    labels: dict[str, str]
    namespace: str
    ip: str


class Firewall:
    """The rules for all addresses in `supernet`, in chains that begin with `name`. With `enforces`
    false, everything is let through, as networks do that ignore policies."""

    def __init__(self, name: str, supernet: str, *, enforces: bool = True) -> None:
        self._name = name
        self._supernet = supernet
        self.enforces = enforces

    def open(self) -> None:
        self.close()
        for chain in self._chains:
            _iptables("-N", chain)
        self.update([], [])
        for parent in ("DOCKER-USER", "INPUT"):
            _iptables("-I", parent, "-s", self._supernet, "-j", self._name)
        _iptables("-I", "DOCKER-USER", "-d", self._supernet, "-j", self._name)

    def close(self) -> None:
        for parent, way in (("DOCKER-USER", "-s"), ("INPUT", "-s"), ("DOCKER-USER", "-d")):
            rule = (parent, way, self._supernet, "-j", self._name)
            while _tried("-C", *rule):
                _iptables("-D", *rule)
        for chain in self._chains:
            _tried("-F", chain)
        for chain in self._chains:
            _tried("-X", chain)

    def update(self, pods: Iterable[PodAddress], policies: Iterable[Object]) -> None:
        """Replace all rules at once."""
        main, out, come = self._chains
        pods, policies = list(pods), list(policies) if self.enforces else []
        rules = [f"-A {main} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"]
        rules += [f"-A {main} -j {out}", f"-A {main} -j {come}", f"-A {main} -j ACCEPT"]
        for pod in pods:
            rules += _rules(out, pod, pods, policies, "Egress")
            rules += _rules(come, pod, pods, policies, "Ingress")
        lines = ["*filter", *(f":{chain} -" for chain in self._chains), *rules, "COMMIT", ""]
        subprocess.run(
            ["iptables-restore", "--noflush", "--wait"],
            input="\n".join(lines).encode(),
            check=True,
        )

    @property
    def _chains(self) -> tuple[str, str, str]:
        return self._name, f"{self._name}-OUT", f"{self._name}-IN"


def _rules(
    chain: str, pod: PodAddress, pods: list[PodAddress], policies: list[Object], kind: str
) -> Iterator[str]:
    way, other, peers = ("-s", "-d", "to") if kind == "Egress" else ("-d", "-s", "from")
    ours = [
        each["spec"]
        for each in policies
        if each["metadata"]["namespace"] == pod.namespace
        and _selects(each["spec"]["podSelector"], pod.labels)
        and kind in each["spec"].get("policyTypes", ["Ingress"])
    ]
    if not ours:
        return
    own = f"-A {chain} {way} {pod.ip}"
    for spec in ours:
        for rule in spec.get(kind.lower()) or ():
            for ports in _ports(rule.get("ports")):
                if not rule.get(peers):
                    yield f"{own} {ports} -j RETURN"
                for peer in rule.get(peers) or ():
                    for place in _places(peer, pod.namespace, pods):
                        yield f"{own} {other} {place} {ports} -j RETURN"
    yield f"{own} -j DROP"


def _ports(ports: list[Object] | None) -> Iterator[str]:
    if not ports:
        yield ""
    for each in ports or ():
        protocol = str(each.get("protocol", "TCP")).lower()
        port = f" --dport {each['port']}" if "port" in each else ""
        yield f"-p {protocol}{port}"


def _places(peer: Object, namespace: str, pods: list[PodAddress]) -> Iterator[str]:
    if (block := peer.get("ipBlock")) is not None:
        if ":" not in block["cidr"]:
            yield from _without(block["cidr"], block.get("except") or [])
        return
    for pod in pods:
        if "namespaceSelector" in peer:
            if peer["namespaceSelector"]:
                raise NotImplementedError("namespaces are selected all or by being the same")
        elif pod.namespace != namespace:
            continue
        if _selects(peer.get("podSelector") or {}, pod.labels):
            yield pod.ip


def _without(cidr: str, but: list[str]) -> Iterator[str]:
    """The networks that make up `cidr` without the exceptions."""
    left = [ipaddress.ip_network(cidr)]
    for each in map(ipaddress.ip_network, but):
        cut: list[Any] = []
        for network in left:
            if each.subnet_of(network):  # type: ignore[arg-type]
                cut += network.address_exclude(each)  # type: ignore[arg-type]
            elif not network.subnet_of(each):  # type: ignore[arg-type]
                cut.append(network)
        left = cut
    yield from map(str, left)


def _selects(selector: Object, labels: dict[str, str]) -> bool:
    for name, value in (selector.get("matchLabels") or {}).items():
        if labels.get(name) != value:
            return False
    for each in selector.get("matchExpressions") or ():
        found, values = labels.get(each["key"]), each.get("values") or ()
        match each["operator"]:
            case "In" if found not in values:
                return False
            case "NotIn" if found in values:
                return False
            case "Exists" if found is None:
                return False
            case "DoesNotExist" if found is not None:
                return False
    return True


def _iptables(*words: str) -> None:
    subprocess.run(["iptables", "--wait", *words], check=True, capture_output=True)


def _tried(*words: str) -> bool:
    done = subprocess.run(["iptables", "--wait", *words], check=False, capture_output=True)
    return done.returncode == 0
