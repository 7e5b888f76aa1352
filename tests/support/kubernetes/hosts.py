"""What tests ask of a host whose guests are pods."""

import json
from typing import Any, Final

from wire.settings import EgressSettings

from runner.client.gateway import GatewayClient
from runner.config.models import Config
from runner.host.host import Host
from runner.tiers.kubernetes.settings import TIER, settings_of

ALLOWED: Final = EgressSettings.model_validate({"shell": {"allow": ["allowed.example"]}})


def with_egress(config: Config) -> Config:
    """With one place that commands may reach, so that their egress guest runs."""
    return config.model_copy(update={"egress": ALLOWED})


async def call(host: Host, name: str, **arguments: Any) -> str:
    """What the user's agent answers to a call of a tool."""
    async with await GatewayClient.open(await host.gateway(), channel_name="test") as agent:
        return (await agent.call_tool(name, json.dumps(arguments))).text


def with_settings(config: Config, **changed: object) -> Config:
    """`config` with some settings of the tier changed."""
    return config.model_copy(update={TIER: settings_of(config).model_copy(update=changed)})
