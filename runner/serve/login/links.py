"""Links that let somebody in, once: the operator by those of `runner serve --open`, a person by
those that the operator makes in the console.

A link's secret stands behind the `#` of its address, which browsers never send. Of it only the hash
is kept, as the name of a file in a private directory, where only this account can make one; who
removes the file has taken the link, so it works once.
"""

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from wire.disk import store
from wire.errors import Code, WireError

from runner.access.tokens import digest
from runner.config.models import Config
from runner.config.user_id import check_user_id
from runner.workspace.directories import check_root, check_tree, create_tree

LINK_S: Final = 300.0
INVITATION_S: Final = 86_400.0
CHANNEL: Final = "console"
DIRECTORY: Final = ".serve"


@dataclass(frozen=True)
class Link:
    """What a link lets in: the operator, who begins with `user_id`, or that user. `until` is in
    seconds since 1970."""

    user_id: str
    operator: bool
    until: float


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
        return self._made(Link(check_user_id(user_id), True, time.time() + LINK_S))

    def invite(self, user_id: str) -> tuple[str, float]:
        """A new link's secret, and until when it is good. Who shows it is `user_id`; an earlier
        link that let this user in does not any more."""
        self.withdraw(user_id)
        link = Link(check_user_id(user_id), False, time.time() + INVITATION_S)
        return self._made(link), link.until

    def withdraw(self, user_id: str) -> None:
        """Let nobody in as `user_id` by a link that was not used yet."""
        for path, link in self._all():
            if not link.operator and link.user_id == user_id:
                path.unlink(missing_ok=True)

    def take(self, secret: str) -> Link | None:
        """The link of `secret`, which is no good from then on. None for one that was used, is too
        old or never was."""
        check_tree(self._root, (DIRECTORY, f"{DIRECTORY}/links"))
        path = self._links / digest(secret)
        link = _read(path)
        try:
            path.unlink()
        except OSError:
            return None
        return link if link is not None and link.until >= time.time() else None

    def _made(self, link: Link) -> str:
        self.prepare()
        for path, old in self._all():
            if old.until < time.time():
                path.unlink(missing_ok=True)
        secret = secrets.token_urlsafe(32)
        store(self._links / digest(secret), json.dumps(asdict(link)))
        return secret

    def _all(self) -> Iterator[tuple[Path, Link]]:
        for path in list(self._links.iterdir()) if self._links.is_dir() else ():
            if (link := _read(path)) is not None:
                yield path, link


def _read(path: Path) -> Link | None:
    try:
        link = Link(**json.loads(path.read_bytes()))
        check_user_id(link.user_id)
        return link if type(link.operator) is bool and isinstance(link.until, float) else None
    except (OSError, ValueError, TypeError, WireError):
        return None


def not_known() -> WireError:
    """The error for an unusable link, which anybody may have sent."""
    return WireError(
        Code.UNAUTHENTICATED,
        "this link is not known",
        details="each link works once, and for a short time",
        resolution="ask the person who gave it to you for a new one, or whoever runs this host: "
        "runner serve --open",
    )
