"""The boundary self-test of a user's guests on this machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
from wire.v1 import control_pb2

from runner.boundary.check import check_boundary, check_network, require_passed
from runner.boundary.spec import build_spec, network_spec
from runner.tiers.base import Boundary, GuestMounts, LaunchSpec, TierDriver
from runner.workspace.mounts import Role
from runner.workspace.workspace import Workspace

_BY_NUMBER: Final = frozenset({"private_paths", "other_users"})
"""Checks that know files by their numbers. Since they were listed, one may have been deleted, and a
new one have its number, as guests beside this one start and end: then all is listed anew, once."""
_NO_NAMESPACE: Final = "the agent has no network namespace of its own here"


@dataclass(repr=False, eq=False)
class LocalBoundary(Boundary):
    """See `Boundary`. `runtime` is the runner's directory, `records` that of the audit log."""

    driver: TierDriver
    workspace: Workspace
    runtime: Path
    records: Path

    async def of_shell(
        self, channel: grpc.aio.Channel, launch: LaunchSpec, tokens: Mapping[str, str], canary: str
    ) -> control_pb2.BoundaryReport:
        for _ in range(2):
            spec = build_spec(
                launch,
                self.driver.confinement(launch),
                workspace=self.workspace.path,
                runtime=self.runtime,
                tokens=tokens,
                canary=canary,
                private=self.driver.private(),
                records=self.records,
            )
            report = await check_boundary(channel, spec, launch.mounts)
            failed = {check.name for check in report.checks if not check.passed}
            if not failed or failed - _BY_NUMBER:
                break
        return report

    async def of_agent(
        self, channel: grpc.aio.Channel, launch: LaunchSpec
    ) -> control_pb2.BoundaryReport:
        capabilities = self.driver.capabilities
        seen = GuestMounts(launch.mounts, Role.AGENT in capabilities.own_files)
        spec = network_spec(seen.path(self.workspace.egress_listener(Role.AGENT)))
        known = {} if capabilities.own_network else {"abstract": _NO_NAMESPACE}
        return await check_network(channel, spec, known)

    def require_passed(self, report: control_pb2.BoundaryReport, role: Role) -> None:
        require_passed(report, role)
