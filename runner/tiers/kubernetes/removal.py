"""What a cluster has of one user, and its removal."""

from runner.tiers.kubernetes import claims, policies
from runner.tiers.kubernetes.cluster import Cluster
from runner.tiers.kubernetes.names import LABEL_USER, Owner, selector
from runner.tiers.kubernetes.settings import KubernetesSettings


async def objects(settings: KubernetesSettings, user_id: str) -> list[str]:
    """The user's pods and claims, and what becomes of the latter."""
    owner = Owner(user_id)
    async with Cluster(settings) as cluster:
        pods = await cluster.pods(selector(owner.labels))
        found = await claims.claims_of(cluster, owner)
    fate = "stays, with what it holds" if settings.keep_claims else "goes"
    return [
        *(f"pod {pod['metadata']['name']}" for pod in pods),
        *(
            f"claim {name} of {claims.size_of(claim)}, which {fate}"
            for name, claim in found.items()
            if claim is not None
        ),
    ]


async def remove(settings: KubernetesSettings, user_id: str) -> None:
    """Remove the user's policies and, unless they are to be kept, the claims."""
    owner = Owner(user_id)
    async with Cluster(settings) as cluster:
        await policies.remove(cluster, owner, settings)
        if not settings.keep_claims:
            await claims.remove(cluster, owner)


def remains(settings: KubernetesSettings, user_id: str) -> list[str]:
    """See `Tier.remains`."""
    if not settings.keep_claims:
        return []
    within = f" -n {settings.namespace}" if settings.namespace else ""
    return [
        "the claims stay (kubernetes.keep_claims); to be rid of what they hold: "
        f"kubectl{within} delete pvc -l {LABEL_USER}={Owner(user_id).slug}"
    ]
