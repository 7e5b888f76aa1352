"""The process tier: guests are child processes, the shell in bubblewrap."""

from typing import TYPE_CHECKING

from runner.tiers.base import Tier, TierDriver

if TYPE_CHECKING:
    from runner.config.models import Config


class ProcessTier(Tier):
    """See `Tier`."""

    name = "process"
    images = False
    insecure = True

    def driver(self, config: "Config") -> TierDriver:
        from runner.tiers.process.driver import ProcessDriver

        return ProcessDriver()
