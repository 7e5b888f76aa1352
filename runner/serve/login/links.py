"""Links that let the operator in, once: `runner serve --open` makes them, the server takes them.

A link's secret stands behind the `#` of its address, which browsers never send. Of it only the hash
is kept, as the name of a file in a private directory, where only this account can make one; who
removes the file has taken the link, so it works once.
"""

import json
import secrets
import time
from pathlib import Path
from typing import Final

from wire.errors import Code, WireError

from runner.access.callers import Caller
from runner.access.tokens import digest
from runner.config.models import Config
from runner.config.user_id import check_user_id
from runner.workspace.directories import check_root, check_tree, create_tree, whole_file

LINK_S: Final = 300.0
CHANNEL: Final = "console"
DIRECTORY: Final = ".serve"


class Links:
    """The links of one `workspace_root`; beside them `sessions`, a directory for those."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.directory = root / DIRECTORY
        self.sessions = self.directory / "sessions"
        self._links = self.directory / "links"

    @classmethod
    def locate(cls, config: Config) -> "Links":
        """Touches nothing on disk."""
        return cls(config.workspace_root)

    def prepare(self) -> None:
        """Create the directory, private to this account. Idempotent."""
        check_root(self._root, private=False)
        create_tree(self._root, (DIRECTORY, f"{DIRECTORY}/links", f"{DIRECTORY}/sessions"))

    def make(self, user_id: str) -> str:
        """A new link's secret. Who shows it is the operator, and begins with `user_id`."""
        self.prepare()
        self._clear()
        secret = secrets.token_urlsafe(32)
        content = {"user_id": check_user_id(user_id), "until": time.time() + LINK_S}
        with whole_file(self._links / digest(secret)) as file:
            file.write(json.dumps(content).encode())
        return secret

    def take(self, secret: str) -> Caller | None:
        """Who shows `secret`, which is no good from then on. None for one that was used, is too old
        or never was."""
        check_tree(self._root, (DIRECTORY, f"{DIRECTORY}/links"))
        path = self._links / digest(secret)
        try:
            content = json.loads(path.read_bytes())
            path.unlink()
            if content["until"] < time.time():
                return None
            return Caller.at_terminal(check_user_id(content["user_id"]), CHANNEL)
        except (OSError, ValueError, KeyError, TypeError, WireError):
            return None

    def _clear(self) -> None:
        for path in self._links.iterdir():
            if path.stat().st_mtime < time.time() - LINK_S:
                path.unlink(missing_ok=True)


def not_known() -> WireError:
    """The error for an unusable link."""
    return WireError(
        Code.UNAUTHENTICATED,
        "this link is not known",
        details=f"it was used already, or is older than {LINK_S / 60:.0f} minutes",
        resolution="make another one: runner serve --open",
    )
