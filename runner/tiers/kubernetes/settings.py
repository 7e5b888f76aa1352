"""`[kubernetes]` of `runner.toml`."""

import ipaddress
from typing import TYPE_CHECKING, Annotated, Final, Literal, cast

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError
from wire.settings import OptionalPath, Section, Switch, count, text

if TYPE_CHECKING:
    from runner.config.models import Config

TIER: Final = "kubernetes"


def _address_range(value: str) -> str:
    try:
        return str(ipaddress.ip_network(value))
    except ValueError as error:
        raise PydanticCustomError("range", "is not a range: {why}", {"why": str(error)}) from None


ObjectName = Annotated[
    str, text("a name in the cluster", r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")
]
ImageName = Annotated[
    str, text("an image, best by its digest: registry/name@sha256:…", r"^[!-~]{0,500}$")
]
Quantity = Annotated[str, text("a size: 500Mi, 5Gi or 1Ti", r"^[1-9][0-9]{0,8}(Mi|Gi|Ti)$")]
Labels = Annotated[
    tuple[
        Annotated[
            str,
            text(
                "a label and its value: k8s-app=kube-dns",
                r"^([A-Za-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
                r"=([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$",
                max_length=400,
            ),
        ],
        ...,
    ],
    Field(max_length=50, description='a list of labels as "k8s-app=kube-dns"'),
]
AddressRange = Annotated[str, Field(strict=True), AfterValidator(_address_range)]


class KubernetesSettings(Section):
    """`[kubernetes]`: the cluster, the images and the volumes of the kubernetes tier.

    `namespace` is that of the guests; empty for the one that the runner's pod is in, or that its
    kubeconfig names. Without `kubeconfig`, the runner uses what a pod has, or else the usual file.
    An empty image is the one that `[container] images` leads to. Empty `storage_class` and
    `runtime_class` are the cluster's own. Guests end `lease_s` after they last heard of a runner.
    `private_ranges` are closed to egress beside those that are private everywhere; `dns_labels` are
    those of the pods that resolve names, in the namespace `dns_namespace`.
    """

    namespace: Annotated[str, text("a namespace", r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$")] = ""
    kubeconfig: Annotated[OptionalPath, Field(description="a path of a file")] = None
    agent_image: ImageName = ""
    shell_image: ImageName = ""
    egress_image: ImageName = ""
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    image_pull_secrets: Annotated[
        tuple[ObjectName, ...], Field(max_length=16, description="a list of names of Secrets")
    ] = ()
    storage_class: ObjectName | Literal[""] = ""
    state_size: Quantity = "5Gi"
    work_size: Quantity = "10Gi"
    keep_claims: Switch = True
    runtime_class: ObjectName | Literal[""] = ""
    node_selector: Labels = ()
    dns_labels: Labels = ("k8s-app=kube-dns",)
    dns_namespace: ObjectName = "kube-system"
    private_ranges: Annotated[
        tuple[AddressRange, ...],
        Field(max_length=100, description="a list of address ranges: 100.64.0.0/10"),
    ] = ()
    lease_s: Annotated[int, count(20, 3600)] = 240
    start_s: Annotated[int, count(10, 3600)] = 180


def settings_of(config: "Config") -> KubernetesSettings:
    """This tier's settings among all of a runner."""
    return cast("KubernetesSettings", config.table(TIER))
