"""Which embedder a configuration asks for, in which tier."""

from pathlib import Path
from typing import Final

from runner.config import Config
from runner.embedder import EmbedderManager
from runner.embedder_container import ContainerEmbedder
from runner.embedder_home import EmbedderHome
from runner.embedder_process import ProcessEmbedder
from runner.ownership import Owner

_CONTAINER_TIERS: Final = ("container", "micro_vm")


def embedder_for(config: Config, tier: str, runtime_base: Path, owner: Owner) -> EmbedderManager:
    """One runner's share in the embedder of `tier`; touches nothing, and refuses
    (`WireError`) a place too deep for its socket.

    `owner` is whom the guests run as: in a tier of containers the embedder runs
    as the same one, so that they can connect to its socket.
    """
    home = home_for(config, tier, runtime_base, owner)
    _ = home.endpoint
    return EmbedderManager(home)


def home_for(config: Config, tier: str, runtime_base: Path, owner: Owner) -> EmbedderHome:
    """Where that embedder is, for who only reads its log; touches nothing."""
    if tier in _CONTAINER_TIERS:
        return ContainerEmbedder(runtime_base, config.embedder, config.container, owner)
    return ProcessEmbedder(runtime_base, config.embedder)
