"""Who the users of this machine are."""

from runner.config.models import Config
from runner.config.user_id import is_user_id


def known_users(config: Config) -> list[str]:
    """All users with a workspace or a section in the configuration."""
    names = set(config.users)
    if config.workspace_root.is_dir():
        names |= {
            path.name
            for path in config.workspace_root.iterdir()
            if is_user_id(path.name) and path.is_dir() and not path.is_symlink()
        }
    return sorted(names)
