"""Clearing up after a runner that was killed, before anything new is started."""

import logging
from typing import Final

from runner.config import ContainerSection
from runner.planted import clear
from runner.runtime import Runtime
from runner.state import load_state
from runner.tiers.base import TierDriver
from runner.tiers.drivers import driver_for
from runner.workspace import Workspace

log = logging.getLogger(__name__)

_GRACE_S: Final = 2.0
"""Such a guest has had the end of its runner to notice already."""


async def clear_leftovers(
    runtime: Runtime, workspace: Workspace, driver: TierDriver, container: ContainerSection
) -> list[str]:
    """End the guests of an earlier runner and remove its files; notices about what was found.

    The caller holds the host's lock and has checked the workspace, so whatever
    is there belongs to nobody. `driver` is that of the tier to come; guests may be
    of another one.
    Raises `TierError` where such a guest cannot be ended: two agents must never
    share one database.
    """
    notices: list[str] = []
    try:
        handles = load_state(runtime.state)
    except ValueError as error:
        log.warning("the state of an earlier runner cannot be read: %s", error)
        notices.append(f"the state of an earlier runner could not be read ({error})")
        handles = ()
    for handle in handles:
        same = handle.driver == driver.capabilities.tier
        responsible = driver if same else driver_for(handle.driver, container)
        if await responsible.recover(handle):
            await responsible.stop(handle, _GRACE_S)
            notice = f"an earlier runner was killed; its {handle.role} guest was ended"
            log.warning("%s", notice)
            notices.append(notice)
    for ended in await driver.clear(workspace.user_id, workspace.path):
        log.warning("%s", ended)
        notices.append(ended)
    for path in (
        *(runtime.state, runtime.token, runtime.socket),
        *(workspace.gateway_socket, workspace.shell_socket),
    ):
        clear(path)
    return notices
