"""All checks, in the order in which one would fix what they find."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from wire.errors import WireError
from wire.installation import adding

from runner.config.models import Config
from runner.config.user_id import DEFAULT_USER_ID, check_user_id
from runner.doctor import database, directories, engine, kernel, memory, provider, settings
from runner.doctor.finding import Finding, ok, problem, refused
from runner.host.runtime import runtime_base
from runner.tiers.drivers import tier_of
from runner.workspace.disk_space import existing


def examine(
    load: Callable[[], Config],
    user_id: str,
    environ: Mapping[str, str] = os.environ,
    fallback: Config | None = None,
) -> list[Finding]:
    """Everything that `runner doctor` shows. A failing check is a finding, never an exception.

    If `load` fails, that is a finding too, and the other checks use `fallback` or the defaults.
    """
    findings = []
    try:
        check_user_id(user_id)
    except WireError as error:
        findings.append(refused("user", error))
        user_id = DEFAULT_USER_ID
    try:
        config = load()
        findings.append(ok("configuration", f"{config.tier} tier, user {user_id}"))
    except WireError as error:
        findings.append(refused("configuration", error))
        config = fallback or Config()
    for check in _checks(config, user_id, environ):
        try:
            findings += check()
        except Exception as error:
            what = f"the check failed: {type(error).__name__}: {error}"
            findings.append(problem("doctor", what, "report this as a bug of runner doctor"))
    return findings


def _checks(
    config: Config, user_id: str, environ: Mapping[str, str]
) -> Iterable[Callable[[], list[Finding]]]:
    own = config.for_user(user_id)
    here = tier_of(config).here  # else only the runner is on this machine
    in_containers = tier_of(config).images
    in_engine = here and in_containers
    own_uids = in_engine and os.geteuid() == 0
    shell_here = not in_containers and own.shell.enabled
    base = runtime_base(config)
    disks = {existing(path).stat().st_dev for path in (config.workspace_root, base)}
    of_machine: tuple[Callable[[], list[Finding]], ...] = (
        lambda: [settings.model(config.embedder, config.tier, environ)],
        lambda: settings.reranker(config.embedder, config.tier, environ),
        lambda: [kernel.user_namespaces()],
        lambda: [kernel.openat2()],
        lambda: [kernel.security_modules()],
        lambda: [kernel.bubblewrap(needed=shell_here)],
        lambda: [kernel.control_groups()] if shell_here else [],
        lambda: _engine(config, environ, needed=in_containers),
    )
    return (
        lambda: [settings.credential(own.agent, environ)],
        lambda: settings.budgets(own.agent),
        lambda: provider.look_at_server(own.agent, environ) if here else [],
        lambda: [settings.egress(user_id, own, environ)],
        lambda: [settings.notices(own, environ)],
        lambda: engine.servers(own, user_id, config.container, environ) if in_engine else [],
        lambda: [] if in_containers or not here else [settings.packages(own)],
        lambda: [settings.access(config)],
        lambda: [settings.serve(config)],
        lambda: (
            settings.projects(config, user_id, environ, mounts_below=not in_containers)
            if here
            else []
        ),
        lambda: [directories.workspace(config, user_id)],
        lambda: [directories.skills(config, user_id)] if here else [],
        lambda: [directories.guest_uids(config, user_id)] if own_uids else [],
        lambda: [directories.runtime_directory(config, user_id)],
        lambda: [directories.file_system(config.workspace_root / user_id)] if here else [],
        lambda: [directories.free_space("disk", config.workspace_root)],
        lambda: [directories.free_space("runtime disk", base)] if here and len(disks) > 1 else [],
        lambda: [database.database(config, user_id)] if here else [],
        lambda: memory.memory(config, user_id, environ),
        *(of_machine if here else (lambda: _of_tier(config, user_id),)),
    )


def _of_tier(config: Config, user_id: str) -> list[Finding]:
    tier = tier_of(config)
    try:
        return tier.findings(config, user_id)
    except ModuleNotFoundError:
        what = f"the {tier.name} tier needs packages that are not installed"
        return [problem("tier", what, adding("runner", tier.extra))]


def _engine(config: Config, environ: Mapping[str, str], *, needed: bool) -> list[Finding]:
    own_kernel = tier_of(config).own_kernel
    try:
        report = engine.ask(config.container, environ)
    except WireError as error:
        return [
            engine.unusable(error, needed=needed),
            kernel.virtual_machines(needed=own_kernel),
        ]
    facts = report.facts
    runtime = config.container.runtime
    findings = [
        engine.answers(report),
        engine.access(report.socket),
        engine.seccomp(facts),
        engine.limits(facts),
        engine.images(report, needed=needed),
        engine.oci_runtime(facts, runtime, needed=own_kernel),
        kernel.virtual_machines(needed=own_kernel and not facts.is_gvisor(runtime)),
    ]
    if (directory := Path(facts.info.get("DockerRootDir") or "")).is_dir() and needed:
        findings.append(directories.free_space("engine's disk", directory))
    return findings
