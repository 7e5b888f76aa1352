"""All targets."""

from tests.fuzz.targets import (
    configuration,
    envelope,
    export_lines,
    importing,
    properties,
    restoring,
    tool_arguments,
)
from tests.fuzz.targets.rpc import control, embedder, gateway, shell

CATALOGUE = (
    envelope.TARGET,
    export_lines.TARGET,
    importing.TARGET,
    restoring.TARGET,
    configuration.TARGET,
    tool_arguments.TARGET,
    gateway.TARGET,
    shell.TARGET,
    embedder.TARGET,
    control.TARGET,
    *properties.TARGETS,
)
