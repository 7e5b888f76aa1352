"""Pods of a RuntimeClass: each guest has gVisor's kernel."""

from collections.abc import Iterator

import pytest
from wire.boundary import KERNEL_OF_GVISOR

from runner.config.models import Config
from runner.host.host import Host
from tests.support.kubernetes.cluster import RUNNER, Cluster
from tests.support.kubernetes.hosts import call, with_egress, with_settings

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.long,
    pytest.mark.runsc_pods,
    pytest.mark.xdist_group("kubernetes"),
]

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


@pytest.fixture
def runtime_class(cluster: Cluster) -> Iterator[str]:
    name = "gvisor"
    cluster.request("POST", CLASSES, {"metadata": {"name": name}, "handler": "runsc"})
    yield name
    cluster.request("DELETE", f"{CLASSES}/{name}")


async def test_an_agent_remembers_and_acts_behind_a_proven_boundary(
    cluster: Cluster, config: Config, runtime_class: str
) -> None:
    config = with_egress(with_settings(config, runtime_class=runtime_class))
    with cluster.network(host_is=RUNNER):
        async with Host(config, "alice") as host:
            await call(host, "memory_save", content="tea is at five")
            assert "at five" in await call(host, "memory_search", query="tea")
            assert "-gvisor" in await call(host, "shell_exec", command="cat /proc/cmdline")
            for place in ("/shared", "/tmp"):
                file = f"{place}/made.txt"
                await call(host, "file_write", path=file, content="by the agent")
                command = f"cat {file} && echo 'by the shell' >{file}"
                assert "by the agent" in await call(host, "shell_exec", command=command)
                assert "by the shell" in await call(host, "file_read", path=file)
            status = await host.status()
            assert status.kernel == KERNEL_OF_GVISOR
            assert status.boundary.passed
            await call(host, "shell_exec", command="rm -rf /tmp/.kept /tmp/*")
            await host.restart("shell")
            assert "made" in await call(host, "shell_exec", command="touch /tmp/made; ls /tmp/")
            assert (await host.check_boundary()).passed
