"""What a turn changed in projects, in words for people, and taking it back."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from wire.text import visible_name
from wire.v1 import gateway_pb2 as pb

from runner.client.gateway import GatewayClient

_ROOT: Final = "/projects/"
_NAMES_CHARS: Final = 60
_PUT_BACK: Final[Mapping[str, str]] = {"added": "made again", "deleted": "removed"}


def told(files: pb.FileChanges) -> str:
    """`changed 3 files, +40 −12: api/a.py, api/b.py, …`; empty where there is nothing to tell."""
    why = visible_name(files.uncounted)
    if not files.files:
        return f"changes to files are not counted: {why}" if why else ""
    count = f"{files.files:,} file{'' if files.files == 1 else 's'}"
    line = f"changed {count}, +{files.added:,} −{files.removed:,}"
    line += f": {names([each.path for each in files.changes], files.files)}"
    return f"{line} (not all are counted: {why})" if why else line


def names(paths: Iterable[str], count: int) -> str:
    """The first of `count` paths, where they are short."""
    shown, room = list[str](), _NAMES_CHARS
    for path in paths:
        name = short(path)
        if shown and len(name) > room:
            break
        shown.append(name)
        room -= len(name) + 2
    return ", ".join(shown) + (", …" if len(shown) < count else "")


def short(path: str) -> str:
    """A path below /projects, in one line."""
    return visible_name(path.removeprefix(_ROOT))


async def take_back(
    agent: GatewayClient, session_id: str, ask: Callable[[str], Awaitable[int]]
) -> list[str]:
    """Put back what the session's last turn that changed files has changed by tools, and the rest
    if a person agrees, whom `ask` asks. Returns a line for each file. Raises `WireError`."""
    turn_id = (await agent.turn_diff(session_id)).turn_id
    done = await agent.undo_files(session_id, turn_id)
    restored = list(done.restored)
    if done.asks:
        reasons = [*done.reasons, *[""] * len(done.asks)]
        whys = [visible_name(why) or "it changed during this turn" for why in reasons]
        lines = list[str]()
        for change, why, before in zip(done.asks, whys, ["", *whys], strict=False):
            lines += [f"{why}:"] if why != before else []
            lines.append(f"  {short(change.path)}")
        if await ask("\n".join([*lines, "put these back, too?"])):
            paths = [each.path for each in done.asks]
            done = await agent.undo_files(session_id, turn_id, asked=True, paths=paths)
            restored += done.restored
    return [f"{short(each.path)} {_PUT_BACK.get(each.kind, 'put back')}" for each in restored]
