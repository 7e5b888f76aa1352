"""The runner's own directory: sockets, locks and state that no guest ever sees."""

import hashlib
import os
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import platformdirs
from wire.limits import UNIX_SOCKET_PATH_MAX_BYTES
from wire.transport import unix_endpoint

from runner.config import Config
from runner.directories import check_root, check_tree, create_tree
from runner.user_id import USER_ID_MAX_CHARS, check_user_id

_LONGEST_SOCKET: Final = len(f"/01234567/{'u' * USER_ID_MAX_CHARS}/control.sock")


def runtime_base(config: Config) -> Path:
    """The directory that all hosts of this operator share; touches nothing.

    The platform's runtime directory, or a short one below /tmp where there is
    none or where a socket path in it would be too long.
    """
    if config.runtime_dir is not None:
        return config.runtime_dir
    fallback = Path("/tmp") / f"oxydra-{os.geteuid()}"  # noqa: S108 - ownership is checked
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            platform = platformdirs.user_runtime_path("oxydra")
        except PermissionError:
            return fallback
    temporary = platform.is_relative_to(tempfile.gettempdir())
    too_long = len(os.fsencode(platform)) + _LONGEST_SOCKET > UNIX_SOCKET_PATH_MAX_BYTES
    return fallback if temporary or too_long else platform


@dataclass(frozen=True)
class Runtime:
    """The runtime directory of one (workspace_root, user)."""

    base: Path
    relative: str

    @classmethod
    def locate(cls, config: Config, user_id: str) -> "Runtime":
        """Refuses a bad user id and a place too deep for the control socket."""
        root = os.path.realpath(config.workspace_root)
        digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:8]
        runtime = cls(runtime_base(config), f"{digest}/{check_user_id(user_id)}")
        unix_endpoint(runtime.socket)
        return runtime

    @property
    def directory(self) -> Path:
        return self.base / self.relative

    @property
    def lock(self) -> Path:
        return self.directory / "host.lock"

    @property
    def socket(self) -> Path:
        return self.directory / "control.sock"

    @property
    def token(self) -> Path:
        return self.directory / "control.token"

    @property
    def state(self) -> Path:
        return self.directory / "state.json"

    @property
    def log(self) -> Path:
        return self.directory / "host.log"

    def check(self) -> None:
        """Refuse a runtime directory that others may enter or that is not ours."""
        check_root(self.base, private=True)
        check_tree(self.base, self._directories())

    def create(self) -> None:
        """Make it exist with mode 0700. Idempotent."""
        self.check()
        create_tree(self.base, self._directories())

    def _directories(self) -> tuple[str, ...]:
        return (self.relative.partition("/")[0], self.relative)
