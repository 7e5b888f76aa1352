"""All targets."""

from tests.fuzz.targets import (
    configuration,
    egress_rules,
    envelope,
    export_lines,
    importing,
    log_lines,
    restoring,
    scrubbing,
    tool_arguments,
    virtual_paths,
)
from tests.fuzz.targets.rpc import control, embedder, gateway, relay, shell

CATALOGUE = (
    envelope.TARGET,
    export_lines.TARGET,
    log_lines.TARGET,
    importing.TARGET,
    restoring.TARGET,
    configuration.TARGET,
    egress_rules.TARGET,
    virtual_paths.TARGET,
    scrubbing.TARGET,
    tool_arguments.TARGET,
    gateway.TARGET,
    shell.TARGET,
    embedder.TARGET,
    control.TARGET,
    relay.TARGET,
)
