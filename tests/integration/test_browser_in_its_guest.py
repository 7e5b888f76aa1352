"""The browser of the preset in a guest of its own, with the way out that it has there: pages over
TLS that an authority of the operator's has signed."""

import asyncio
import re
import shutil
import tempfile
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from wire.transport import open_channel
from wire.v1 import gateway_pb2_grpc

from runner.config.models import Config
from runner.host.host import Host
from tests.support.internet.internet import Internet, internet
from tests.support.scratch import SCRATCH
from tests.support.tools.tool_guests import Tools

pytestmark = [
    pytest.mark.browser,
    pytest.mark.node,
    pytest.mark.root,
    pytest.mark.bubblewrap,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("guarded_browser"),
]

PRESET: Final = Path(__file__).parents[2] / "runner/presets/browser.toml"
MODULES: Final = Path(__file__).parents[1] / "support/node/node_modules"
PLAYWRIGHT: Final = ("@playwright/mcp", "playwright", "playwright-core")
SITE: Final = "https://www.example.org"


class Browsing(Tools):
    def __init__(self, host: Host, gateway: Any, net: Internet) -> None:
        super().__init__(host, gateway)
        self.net = net

    async def browse(self, tool: str, **arguments: Any) -> str:
        """What the tool says, once the server offers it."""
        async with asyncio.timeout(60):
            while True:
                reply = await self.call(f"browser_{tool}", **arguments)
                if "there is no tool" not in reply.text and "is away" not in reply.text:
                    return str(reply.text.replace("\\n", "\n"))
                await asyncio.sleep(0.05)

    async def click(self, what: str) -> str:
        shown = await self.browse("snapshot")
        found = re.search(rf"{what}.*?\[ref=(\w+)\]", shown)
        assert found, shown
        return await self.browse("click", target=found[1])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browsing() -> AsyncIterator[Browsing]:
    with internet() as net, tempfile.TemporaryDirectory(dir=SCRATCH, prefix="oxb-") as directory:
        root = Path(directory)
        settings = tomllib.loads(PRESET.read_text())["settings"]
        settings["mcp"]["servers"]["browser"]["args"] = [
            *("--server", "/cache/node_modules/@playwright/mcp/cli.js")
        ]
        config = Config.model_validate(
            {
                "workspace_root": root / "ws",
                "runtime_dir": root / "rt",
                "tier": "process",
                "embedder": {"backend": "none"},
                "egress": net.settings,
                **settings,
            }
        )
        async with (
            Host(config, "alice") as host,
            open_channel(await host.gateway()) as channel,
        ):
            modules = host.workspace.path / "tools/browser/cache/node_modules"
            for each in PLAYWRIGHT:
                shutil.copytree(MODULES / each, modules / each)
            yield Browsing(host, gateway_pb2_grpc.GatewayStub(channel), net)


async def test_a_page_of_an_authority_of_the_operators_is_shown(browsing: Browsing) -> None:
    said = await browsing.browse("navigate", url=f"{SITE}/hello")
    assert "ERR_" not in said
    assert "this is www.example.org/hello" in await browsing.browse("snapshot")


async def test_a_form_over_tls_waits_for_a_yes(browsing: Browsing) -> None:
    await browsing.browse("navigate", url=f"{SITE}/form")
    with browsing.net.arrivals.during() as seen:
        said = await browsing.click("Send")
    assert f"held, not sent: POST {SITE}/echo" in said
    assert not [each for each in seen.of("request") if each.holds("POST")]


async def test_a_download_arrives_where_the_users_files_are(browsing: Browsing) -> None:
    await browsing.browse("navigate", url=f"{SITE}/form")
    said = await browsing.click("Prices")
    while "downloaded: " not in said:
        said += await browsing.browse("wait_for", time=0.1)
    assert "downloaded: /shared/downloads/prices.csv" in said
    shared = browsing.host.workspace.path / "shared"
    assert (shared / "downloads/prices.csv").read_text() == "apple"


async def test_a_site_that_may_not_be_reached_says_why(browsing: Browsing) -> None:
    said = await browsing.browse("navigate", url="https://private.example.org/hello")
    assert "private.example.org is 10.213." in said
    assert "egress.private_networks can name its network" in said
