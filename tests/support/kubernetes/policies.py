"""NetworkPolicies, enforced by iptables between the addresses of pods.

A pod that a policy selects may do in that direction only what one of its policies lists. What comes
back on a connection that was let through may pass. This machine is the node: its own connections to
pods pass, unless `host_is` makes it a pod with these labels.
"""

import asyncio
import ipaddress
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Final

Object = dict[str, Any]
_BRIDGED: Final = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
_HOOKS: Final = ("DOCKER-USER", "INPUT", "OUTPUT")
_PREFIX: Final = "OXK"


@dataclass(frozen=True)
class Address:
    """A pod as policies see it. `since` is when it got its address, by the monotonic clock."""

    namespace: str
    labels: dict[str, str]
    ip: str
    since: float


class Policies:
    """The rules for all pods in `subnet`, in chains that carry the name `owner`.

    `enforced` false is a network that takes no notice of policies; with `after_s` policies take
    hold of a pod so long after its start. All three may be changed; `apply` makes it so.
    """

    def __init__(self, owner: str, subnet: str) -> None:
        self._main = main_chain(owner)
        self._subnet = subnet
        self._pods: dict[str, Address] = {}
        self._namespaces: dict[str, dict[str, str]] = {}
        self._policies: list[Object] = []
        self._chains: list[str] = []
        self._turn = asyncio.Lock()
        self._later: set[asyncio.Task[None]] = set()
        self.enforced = True
        self.after_s = 0.0
        self.host_is: dict[str, str] | None = None

    async def open(self) -> None:
        """Begin to filter. Raises `RuntimeError` where bridges pass iptables by."""
        if not _BRIDGED.exists() or _BRIDGED.read_text().strip() != "1":
            raise RuntimeError(f"{_BRIDGED} is not 1: policies between pods would do nothing")
        await self.apply()
        for hook, way in product(_HOOKS, ("-s", "-d")):
            _iptables("-I", hook, way, self._subnet, "-j", self._main)

    async def close(self) -> None:
        for task in self._later:
            task.cancel()
        async with self._turn:
            remove(self._main)

    async def add(self, uid: str, pod: Object, ip: str) -> None:
        """Take in a pod; return when its traffic is filtered."""
        meta = pod["metadata"]
        self._pods[uid] = Address(
            meta["namespace"], dict(meta.get("labels") or {}), ip, time.monotonic()
        )
        if self.after_s:
            self._begin(self.after_s)
        await self.apply()

    def relabel(self, uid: str, labels: dict[str, str]) -> None:
        """Note the labels that a pod has now."""
        known = self._pods.get(uid)
        if known is not None and known.labels != labels:
            self._pods[uid] = replace(known, labels=labels)
            self._begin()

    async def drop(self, uid: str) -> None:
        """Forget a pod, whose address may soon be another one's."""
        if self._pods.pop(uid, None) is not None:
            await self.apply()

    def take_policies(self, policies: list[Object]) -> None:
        self._policies = policies
        self._begin()

    def take_namespaces(self, namespaces: list[Object]) -> None:
        found = {e["metadata"]["name"]: dict(e["metadata"].get("labels") or {}) for e in namespaces}
        if found != self._namespaces:
            self._namespaces = found
            self._begin()

    async def apply(self) -> None:
        """Replace all rules at once."""
        async with self._turn:
            rules, chains = [*self._rules()], [self._main, *self._of_pods()]
            stale = [each for each in self._chains if each not in chains]
            declared = [f":{each} - [0:0]" for each in (*chains, *stale)]
            ends = [f"-X {each}" for each in stale]
            text = "\n".join(("*filter", *declared, *rules, *ends, "COMMIT", ""))
            await asyncio.to_thread(_restore, text)
            self._chains = chains

    def _begin(self, after_s: float = 0.0) -> None:
        async def later() -> None:
            await asyncio.sleep(after_s)
            await self.apply()

        task = asyncio.create_task(later())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    def _of_pods(self) -> Iterator[str]:
        for pod in self._pods.values():
            yield from (self._chain(pod, "Egress"), self._chain(pod, "Ingress"))

    def _chain(self, pod: Address, direction: str) -> str:
        return f"{self._main}-{direction[0]}-{int(ipaddress.ip_address(pod.ip)):x}"

    def _rules(self) -> Iterator[str]:
        yield f"-A {self._main} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
        for direction, way in (("Egress", "-s"), ("Ingress", "-d")):
            for pod in self._pods.values():
                yield f"-A {self._main} {way} {pod.ip} -j {self._chain(pod, direction)}"
                yield from self._of_pod(pod, direction)
        yield f"-A {self._main} -s {self._subnet} -d {self._subnet} -j ACCEPT"

    def _of_pod(self, pod: Address, direction: str) -> Iterator[str]:
        chain, peers = self._chain(pod, direction), "to" if direction == "Egress" else "from"
        other = "-d" if direction == "Egress" else "-s"
        specs = [*self._selecting(pod, direction)]
        if not specs:
            return
        if direction == "Ingress" and self.host_is is None:
            yield f"-A {chain} -m addrtype --src-type LOCAL -j RETURN"
        for spec in specs:
            for rule in spec.get(direction.lower()) or ():
                for port in _ports(rule.get("ports")):
                    for place in self._places(rule.get(peers), pod.namespace, other):
                        yield f"-A {chain} {place} {port} -j RETURN"
        yield f"-A {chain} -j DROP"

    def _selecting(self, pod: Address, direction: str) -> Iterator[Object]:
        if not self.enforced or time.monotonic() < pod.since + self.after_s:
            return
        for policy in self._policies:
            spec = policy["spec"]
            if (
                policy["metadata"]["namespace"] == pod.namespace
                and direction in spec.get("policyTypes", ["Ingress"])
                and _selects(spec["podSelector"], pod.labels)
            ):
                yield spec

    def _places(self, peers: list[Object] | None, namespace: str, other: str) -> Iterator[str]:
        """What a packet must have at its other end; without peers anything will do."""
        if not peers:
            yield ""
        for peer in peers or ():
            if (block := peer.get("ipBlock")) is not None:
                for network in _without(block["cidr"], block.get("except") or []):
                    yield f"{other} {network}"
                continue
            for pod in self._pods.values():
                if self._is(peer, namespace, pod.namespace, pod.labels):
                    yield f"{other} {pod.ip}"
            if self.host_is is not None and self._is(peer, namespace, namespace, self.host_is):
                kind = "--dst-type" if other == "-d" else "--src-type"
                yield f"-m addrtype {kind} LOCAL"

    def _is(self, peer: Object, ours: str, namespace: str, labels: dict[str, str]) -> bool:
        of_namespace = peer.get("namespaceSelector")
        if of_namespace is None:
            fits = namespace == ours
        else:
            fits = _selects(of_namespace, self._namespaces.get(namespace, {}))
        return fits and _selects(peer.get("podSelector") or {}, labels)


def remove(main: str) -> None:
    """Remove a chain with all that belongs to it."""
    rules = _iptables("-S").splitlines()
    for rule in rules:
        if rule.startswith("-A") and rule.endswith(f"-j {main}"):
            _iptables("-D", *rule.split()[1:])
    chains = [rule.split()[1] for rule in rules if rule.startswith("-N")]
    ours = [each for each in chains if each == main or each.startswith(f"{main}-")]
    for each in ours:
        _iptables("-F", each)
    for each in ours:
        _iptables("-X", each)


def owners() -> set[str]:
    """Whose chains there are."""
    found = {rule.split()[1] for rule in _iptables("-S").splitlines() if rule.startswith("-N")}
    return {
        each.removeprefix(_PREFIX) for each in found if each.startswith(_PREFIX) and "-" not in each
    }


def main_chain(owner: str) -> str:
    """The chain that all others of an owner are reached by."""
    return f"{_PREFIX}{owner}"


def _ports(ports: list[Object] | None) -> Iterator[str]:
    if not ports:
        yield ""
    for each in ports or ():
        protocol, port = str(each.get("protocol", "TCP")).lower(), each.get("port")
        if isinstance(port, str):
            raise NotImplementedError(f"policies with ports by name: {port}")
        yield f"-p {protocol}" + (f" --dport {port}" if port is not None else "")


def _without(cidr: str, exceptions: list[str]) -> list[str]:
    """The networks that make up `cidr` without the exceptions. Pods have no IPv6."""
    if ":" in cidr:
        return []
    left = [ipaddress.IPv4Network(cidr)]
    for each in map(ipaddress.IPv4Network, exceptions):
        cut: list[ipaddress.IPv4Network] = []
        for network in left:
            if each.subnet_of(network):
                cut += network.address_exclude(each)
            elif not network.subnet_of(each):
                cut.append(network)
        left = cut
    return [str(each) for each in left]


def _selects(selector: Object, labels: dict[str, str]) -> bool:
    if any(labels.get(k) != v for k, v in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_fits(each, labels) for each in selector.get("matchExpressions") or ())


def _fits(expression: Object, labels: dict[str, str]) -> bool:
    found, values = labels.get(expression["key"]), expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
    return found is None


def _iptables(*words: str) -> str:
    command = ["iptables", "--wait", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _restore(text: str) -> None:
    command = ["iptables-restore", "--noflush", "--wait"]
    done = subprocess.run(command, input=text, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{done.stderr}\n{text}")
