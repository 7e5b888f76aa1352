"""Who may connect to whom: one policy for each of a user's guests, in which all else is denied.

A policy lists what may come in and what may go out; what is in no list is dropped. So each of these
names both directions.
"""

from ipaddress import IPv6Network, ip_network
from typing import Any, Final
from urllib.parse import urlsplit

from wire.egress.rules import DEFAULT_PORTS, Rule
from wire.v1.egress_pb2 import EgressConfiguration

from runner.tiers.base import Port
from runner.tiers.kubernetes.cluster import Cluster, as_json
from runner.tiers.kubernetes.names import (
    APP,
    EMBEDDER,
    LABEL_NAME,
    LABEL_NAMESPACE,
    LABEL_ROLE,
    LABEL_USER,
    RUNNER,
    Owner,
    labels_of,
)
from runner.tiers.kubernetes.settings import KubernetesSettings
from runner.workspace.mounts import Role

DNS_PORT: Final = 53
MEMORY_PORT: Final = 8080
MEMORY: Final = {LABEL_NAME: APP, LABEL_ROLE: "memory"}
_PRIVATE_4: Final = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
    *("168.63.129.16/32", "172.16.0.0/12", "192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15"),
    *("224.0.0.0/4", "240.0.0.0/4"),
)
Ports = tuple[int, ...] | None
"""Ports of TCP; None for any port of any protocol."""
USUAL: Final = tuple(sorted({*DEFAULT_PORTS.values()}))
_NODE_NAMES: Final = "169.254.20.10/32"
"""Where NodeLocal DNSCache listens on each node."""
_PUBLIC_6: Final = "2000::/3"
_NOT_PUBLIC_6: Final = ("2001::/32", "2001:db8::/32", "2002::/16")
"""Addresses in it that stand for others, and those of examples."""


def ports_of(told: EgressConfiguration) -> Ports:
    """The ports that an egress guest may need, so configured. None if it may need any: what a
    person allows who is asked, or name servers of its own."""
    each_policy = (told.agent, told.shell, told.runner)
    if told.name_servers or any(policy.ask for policy in each_policy):
        return None
    rules = [rule for policy in each_policy for rule in policy.allow]
    rules += [grant.rule for policy in each_policy for grant in policy.grants if not grant.denied]
    urls = [urlsplit(url) for url in (*(each.url for each in told.upstreams), told.proxy)]
    named = (*(Rule.parse(rule).port for rule in rules), *(url.port for url in urls))
    return tuple(sorted({*USUAL, *filter(None, named)}))


def policies(
    owner: Owner, settings: KubernetesSettings, home: str = "", ports: Ports = None
) -> list[dict[str, Any]]:
    """The policies of one user's guests. The agent's egress alone reaches the memory server.

    `home` is the namespace of the runner and of memory servers; empty if guests are in it, too.
    `ports` are those of the world that egress may reach.
    """

    def own(role: Role) -> dict[str, Any]:
        return _pods({**owner.labels, LABEL_ROLE: role.value})

    def at_home(labels: dict[str, str]) -> dict[str, Any]:
        return {**_pods(labels), **(_namespace(home) if home else {})}

    runner, embedder = at_home(RUNNER), _pods(EMBEDDER)
    agent, shell = own(Role.AGENT), own(Role.SHELL)
    world = [{"to": outside(settings), **_open(ports)}, _names(settings)]
    return [
        _policy(
            owner,
            Role.AGENT,
            come=[_rule("from", [runner], Port.GATEWAY)],
            go=[
                _rule("to", [shell], Port.SHELL),
                _rule("to", [own(Role.EGRESS)], Port.AGENT_LISTENER),
                _rule("to", [embedder], Port.EMBEDDER),
            ],
        ),
        _policy(
            owner,
            Role.SHELL,
            come=[_rule("from", [runner, agent], Port.SHELL)],
            go=[_rule("to", [own(Role.SHELL_EGRESS)], Port.SHELL_LISTENER)],
        ),
        _policy(
            owner,
            Role.EGRESS,
            come=[
                _rule("from", [runner], Port.EGRESS),
                _rule("from", [runner, agent], Port.AGENT_LISTENER),
            ],
            go=[*world, _rule("to", [at_home({**MEMORY, LABEL_USER: owner.slug})], MEMORY_PORT)],
        ),
        _policy(
            owner,
            Role.SHELL_EGRESS,
            come=[
                _rule("from", [runner], Port.EGRESS),
                _rule("from", [shell], Port.SHELL_LISTENER),
            ],
            go=world,
        ),
    ]


def outside(settings: KubernetesSettings) -> list[dict[str, Any]]:
    """The addresses of the world, without those that are private or of this cluster."""
    own = [ip_network(each) for each in settings.private_ranges]
    public = IPv6Network(_PUBLIC_6)
    of_6 = [str(each) for each in own if isinstance(each, IPv6Network) and each.subnet_of(public)]
    return [
        _block("0.0.0.0/0", [*_PRIVATE_4, *(str(each) for each in own if each.version == 4)]),
        _block(_PUBLIC_6, [*_NOT_PUBLIC_6, *of_6]),
    ]


async def ensure(
    cluster: Cluster, owner: Owner, role: Role, settings: KubernetesSettings, ports: Ports
) -> None:
    """Bring the policy of one of the user's guests to what it is to be. Raises `TierError`."""
    networking, name = cluster.networking, owner.name(role.value)
    made = policies(owner, settings, cluster.home if cluster.apart else "", ports)
    (wanted,) = (each for each in made if each["metadata"]["name"] == name)
    found = await cluster.made(
        "policy",
        networking.create_namespaced_network_policy,
        networking.read_namespaced_network_policy,
        wanted,
    )
    if as_json(found["spec"]) != as_json(wanted["spec"]):
        await cluster.ask(
            f"replace the policy {name}",
            networking.replace_namespaced_network_policy,
            name,
            cluster.namespace,
            wanted,
        )


async def remove(cluster: Cluster, owner: Owner, settings: KubernetesSettings) -> None:
    """Remove the user's policies."""
    for policy in policies(owner, settings):
        name = policy["metadata"]["name"]
        await cluster.find(
            f"remove the policy {name}",
            cluster.networking.delete_namespaced_network_policy,
            name,
            cluster.namespace,
        )


def _policy(
    owner: Owner, role: Role, *, come: list[dict[str, Any]], go: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": owner.metadata(role.value),
        "spec": {
            **_pods({**owner.labels, LABEL_ROLE: role.value}),
            "policyTypes": ["Ingress", "Egress"],
            "ingress": come,
            "egress": go,
        },
    }


def _pods(labels: dict[str, str]) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": labels}}


def _namespace(name: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {LABEL_NAMESPACE: name}}}


def _rule(way: str, peers: list[dict[str, Any]], port: int) -> dict[str, Any]:
    return {way: peers, "ports": [{"protocol": "TCP", "port": int(port)}]}


def _names(settings: KubernetesSettings) -> dict[str, Any]:
    """The pods that resolve names, in their own namespace: others could be labelled so by whoever
    makes pods somewhere. And the node's cache of names, where there is one."""
    pods = {**_namespace(settings.dns_namespace), **_pods(labels_of(settings.dns_labels))}
    return {
        "to": [pods, {"ipBlock": {"cidr": _NODE_NAMES}}],
        "ports": [{"protocol": each, "port": DNS_PORT} for each in ("UDP", "TCP")],
    }


def _open(ports: Ports) -> dict[str, Any]:
    found = [{"protocol": "TCP", "port": port} for port in ports or ()]
    return {"ports": found} if found else {}


def _block(everything: str, but: list[str]) -> dict[str, Any]:
    return {"ipBlock": {"cidr": everything, "except": but}}
