"""Settings for tests: what a guest is told, and values that no operator may set, such as a
store for ten bytes or a wait of a minute."""

import json
from pathlib import Path
from typing import Any

from wire.identity import Party
from wire.limits import ENVELOPE_VERSION
from wire.settings import MemorySettings
from wire.v1.bootstrap_pb2 import BootstrapEnvelope

from guest.memory.models import MemoryConfig, MemoryTimeouts, RemoteConfig
from runner.config.loading import load_settings
from runner.config.models import Config
from tests.support import parties

PATIENT = MemoryTimeouts(
    server_s=60.0,
    copy_s=60.0,
    own_writes_s=60.0,
    query_vector_s=60.0,
    turn_s=60.0,
    loading_s=0.0,
    starting_s=0.0,
)
"""What a person would not wait for, a test does: on a busy machine a disk may take seconds. An
embedder that is away is not about to start."""


TOKEN = "launch-token-0123456789"
EGRESS_TOKEN = "token-of-egress-0123456789"


def load_config(file: Path | None = None, **options: Any) -> Config:
    """The settings alone; see `load_settings`."""
    return load_settings(file, **options).config


def memory_config(
    db_path: Path,
    *,
    encryption_key: str = "",
    remote: RemoteConfig | None = None,
    patience: MemoryTimeouts = PATIENT,
    **settings: Any,
) -> MemoryConfig:
    """A store with settings that are not checked. `embed_wait_s` and `max_text_bytes` may be
    given instead of the settings in other units."""
    if "embed_wait_s" in settings:
        settings["embed_wait_ms"] = settings.pop("embed_wait_s") * 1000
    if "max_text_bytes" in settings:
        settings["max_text_mb"] = settings.pop("max_text_bytes") / 2**20
    unchecked = MemorySettings.model_construct(**settings)
    return MemoryConfig(str(db_path), unchecked, encryption_key, remote, patience)


def envelope_for(root: Path, user_id: str = "alice") -> BootstrapEnvelope:
    """What starts a guest in `root`, with every setting at its default; the directories of
    its workspace are to be made."""
    made = BootstrapEnvelope(
        version=ENVELOPE_VERSION, user_id=user_id, tier="process", token=TOKEN, launch_id="l1"
    )
    made.identity.CopyFrom(parties.identity(Party.AGENT).message())
    made.gateway = f"unix:{root}/ipc/gateway.sock"
    for name in ("internal", "shared", "tmp", "vault", "ipc"):
        setattr(made.paths, name, str(root / name))
    made.paths.database = str(root / "internal/memory.db")
    return made


def with_provider(envelope: BootstrapEnvelope, listener: Path, missing: str = "") -> None:
    """Let a provider answer, behind a listener; `missing` is why it cannot."""
    configure(envelope, "agent", provider="openai", model="m", base_url="http://127.0.0.1:9/v1")
    envelope.egress.CopyFrom(parties.link(f"unix:{listener}", EGRESS_TOKEN))
    envelope.upstreams["openai"] = missing


def configure(envelope: BootstrapEnvelope, section: str, **settings: Any) -> None:
    """Set some settings of one section in `envelope`."""
    known = json.loads(envelope.settings.get(section, "{}"))
    envelope.settings[section] = json.dumps({**known, **settings})
