"""Removing what an earlier run or a guest has left behind."""

import logging
from typing import Final

from runner.config.models import Config
from runner.host.runtime import Runtime, load_state
from runner.tiers.base import TierDriver
from runner.tiers.drivers import driver_for
from runner.workspace.beneath import clear
from runner.workspace.workspace import Workspace

log = logging.getLogger(__name__)
_GRACE_S: Final = 2.0
"""Short, because such a guest should have ended with its runner already."""


async def clear_leftovers(
    runtime: Runtime, workspace: Workspace, driver: TierDriver, config: Config
) -> list[str]:
    """End the guests of an earlier runner and remove its files.

    The caller holds the host's lock and the workspace, so what is found belongs to nobody.
    `driver` is that of the tier that will be used; the guests may be of another tier. Returns
    notices about what was found. Raises `TierError` if a guest cannot be ended, because two
    agents must never share one database.
    """
    notices: list[str] = []
    try:
        handles = load_state(runtime.state)
    except ValueError as error:
        notices.append(f"the state of an earlier runner could not be read ({error})")
        handles = ()
    try:
        for handle in handles:
            same = handle.driver == driver.capabilities.tier
            responsible = driver if same else driver_for(config, handle.driver)
            if await responsible.recover(handle):
                await responsible.stop(handle, _GRACE_S)
                notices.append(f"an earlier runner was killed; its {handle.role} guest was ended")
        notices += await driver.clear(workspace.user_id, workspace.path)
        notices += workspace.settle()  # a guest that ran until now may have closed its directories
    finally:  # or nothing would tell of them where one cannot be ended
        for notice in notices:
            log.warning("%s", notice)
    ours = (runtime.state, runtime.token, runtime.identity, runtime.socket)
    for path, home in (
        *((path, runtime.directory) for path in ours),
        *((path, workspace.path) for path in workspace.sockets),
    ):
        if notice := clear(path, home):
            notices.append(notice)
    return notices
