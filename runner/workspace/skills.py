"""A user's skills, as agentskills.io writes them: checked, copied to `skills/NAME` of a workspace,
which guests can only read, and pinned by the digest in `skills-accepted/NAME`, which none sees."""

import hashlib
import os
import re
import shlex
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Final

import yaml  # type: ignore[import-untyped]
from wire.disk import held, walk
from wire.errors import Code
from wire.text import UNSEEN, shortened, visible_name
from wire.v1 import bootstrap_pb2

from runner.errors import WorkspaceError, file_errors
from runner.workspace.beneath import directory_beneath
from runner.workspace.workspace import Workspace

_SKILLS_MAX: Final = 64
_FILES_MAX: Final = 500
_BYTES_MAX: Final = 20_000_000
_TEXT_MAX_BYTES: Final = 64 * 1024
_ENTRIES_MAX: Final = 20_000
_REMARKS_MAX: Final = 20
_LINE_CHARS: Final = 120
MEND: Final = "runner skills add SOURCE, or: runner skills remove NAME"
_MD: Final = "SKILL.md"
_NAME: Final = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
_HEAD: Final = re.compile(r"\A---[ \t]*\n(.{0,8192}?)\n---[ \t]*(?:\n|\Z)", re.DOTALL)
_DOWNLOADS: Final = re.compile(
    r"(?i)\b(?:curl|wget|npx|uvx|bunx|pipx|git clone|urlretrieve|requests\.get)\b|\bbase64 +-d"
    r"|\b(?:pip3?|uv|npm|pnpm|yarn|cargo|gem|go|brew|apt|apt-get|apk|dnf) +(?:install|add|get|i)\b",
)


@dataclass(frozen=True)
class Skill:
    """What is in a skill. `head` has the texts of its frontmatter, `files` digests, `remarks` say
    what a person should look at, and `wrong` why the agent does not get it; empty if it does.
    `content` says of each file whether it is a program, and what is in it, until it is accepted."""

    name: str
    head: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    remarks: Sequence[str] = ()
    wrong: str = ""
    content: Mapping[str, tuple[bool, bytes]] = field(default_factory=dict, repr=False)

    @property
    def message(self) -> bootstrap_pb2.Skill:
        return bootstrap_pb2.Skill(name=self.name, description=self.head["description"])

    @property
    def lost(self) -> str:
        return f"the agent does not get the skill {self.name}: {self.wrong}"


def read(directory: int, name: str = "") -> Skill:
    """The skill in an open directory, which is called `name` if that is given. Raises
    `WorkspaceError` that says why it is none, or is refused."""
    found = dict(sorted((path, (runs, content)) for path, runs, content in _files(directory)))
    if _MD not in found:
        raise _refused(f"there is no {_MD} in it, with the name in these letters")
    if not 0 < len(found[_MD][1]) <= _TEXT_MAX_BYTES:
        raise _refused(f"it needs a {_MD} of at most {_TEXT_MAX_BYTES // 1024} KiB")
    try:
        text = found[_MD][1].decode("utf-8-sig").replace("\r\n", "\n")
        head = yaml.load((_HEAD.findall(text) or [""])[0], Loader=yaml.BaseLoader)  # noqa: S506
    except yaml.MarkedYAMLError as error:
        line, quoted = error.problem_mark.line + 2, "a text with : needs quotes"
        head = ValueError(f"line {line}: {error.problem}; {quoted}")
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        head = error
    if not isinstance(head, dict):
        none = "no table" if head else "there is none"  # aliases make huge ones
        why = " ".join(str(head).split()) if isinstance(head, Exception) else none
        why = visible_name(shortened(why, _LINE_CHARS))
        raise _refused(f"{_MD} must be UTF-8 and begin with YAML between two lines of --- ({why})")
    if hidden := UNSEEN.search(text):
        raise _refused(f"{_MD} has {visible_name(hidden[0])}, which nobody sees")
    head = {str(key): each.strip() for key, each in head.items() if isinstance(each, str)}
    named, told = head.get("name", ""), len(head.get("description", ""))
    if not (_NAME.fullmatch(named) and named == (name or named) and 0 < told <= 1024):
        accepted = "up to 64 of a-z, 0-9 and single - that its directory is called, and description"
        its = f"{visible_name(shortened(named, 64))!r} and {told:,} characters"
        raise _refused(f"it needs a name, {accepted}, up to 1,024 characters; it has {its}")
    every = (each for path, (_, content) in found.items() for each in _remarks(path, content))
    remarks = [*islice(every, _REMARKS_MAX)]
    if next(every, ""):
        remarks.append("and more lines such as these")
    files = {path: hashlib.sha256(repr(each).encode()).hexdigest() for path, each in found.items()}
    digest = hashlib.sha256(repr(files).encode()).hexdigest()
    return Skill(named, head, files, f"sha256:{digest}", remarks, content=found)


def _files(directory: int) -> Iterator[tuple[str, bool, bytes]]:
    """Path, whether it is a program, and content of each. Raises `WorkspaceError` for others."""
    count = size = 0
    for number, entry in enumerate(walk(directory)):
        path, shown = entry.path, visible_name(shortened(entry.path, _LINE_CHARS))
        if ".git" in (*entry.above, entry.name) and number < _ENTRIES_MAX:
            continue  # of a clone; it is never copied
        with held(os.open(entry.name, os.O_PATH | os.O_NOFOLLOW, dir_fd=entry.directory)) as fd:
            found = os.fstat(fd)
            plain = stat.S_ISREG(found.st_mode)
            if found.st_mode & 0o6000 if plain else not stat.S_ISDIR(found.st_mode):
                raise _refused(f"{shown} is a link, a device or set-uid")
            if visible_name(path) != path:
                raise _refused(f"the name {shown} has characters that nobody sees")
            count, size = count + 1, size + plain * found.st_size
            if count > _FILES_MAX or size > _BYTES_MAX:
                raise _refused(f"it has more than {_FILES_MAX} entries or {_BYTES_MAX:,} bytes")
            if plain:
                with Path(f"/proc/self/fd/{fd}").open("rb") as file:
                    yield path, bool(found.st_mode & stat.S_IXUSR), file.read(found.st_size)


def _remarks(path: str, content: bytes) -> Iterator[str]:
    text = b"\0" not in content
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        hidden = text and UNSEEN.search(line)
        if hidden or _DOWNLOADS.search(line):
            what = "has characters that nobody sees" if hidden else "may download"
            yield f"{path}:{number} {what}: {visible_name(shortened(line.strip(), _LINE_CHARS))}"


def _refused(why: str, fix: str = "https://agentskills.io/specification") -> WorkspaceError:
    return WorkspaceError(Code.INVALID_ARGUMENT, f"the skill is refused: {why}", resolution=fix)


def skill_at(home: Path, path: Path, source: str, below: str = "") -> Skill:
    """The skill at or `below` `path`, or the only one there. `path` lies in `home`, which nobody
    else can replace, and a person knows it as `source`. Raises `WorkspaceError`."""
    with (
        file_errors(f"{source} cannot be read", f"ls -ld {source}", kind=WorkspaceError),
        directory_beneath(home, path) as directory,
    ):
        entries = islice(walk(directory), _ENTRIES_MAX)
        some = sorted("/".join(each.above) for each in entries if each.name == _MD)
    one = f"runner skills add {shlex.join([source, *filter(None, some[:1])])}"
    if len(some) > 1 and some[0] and not below:
        raise _refused(f"it has several: {', '.join(some[:_FILES_MAX])}", one)
    where = below.strip("/") or next(iter(some), ".")
    with (
        file_errors(f"{where} in {source} cannot be read", one, kind=WorkspaceError),
        directory_beneath(home, path / where) as directory,
    ):
        return read(directory)


class Skills:
    """The skills of one user. If it `adds` some, their place is made. Raises `WireError`."""

    def __init__(self, workspace: Workspace, *, adds: bool = False) -> None:
        if adds and not workspace.here:
            raise _refused("guests in a cluster see its volumes alone", "use another tier")
        self.home = workspace.path
        self._place, self._pins = self.home / "skills", self.home / "skills-accepted"
        if adds and not self._place.exists():
            with workspace.held():
                self._place.mkdir(mode=0o700)  # the first start gives it to the guests

    def listed(self, only: str = "") -> list[Skill]:
        """Every skill, or the one of that name, by name, each read anew."""
        pins, found = {each.name: each.read_text() for each in self._pins.glob("*")}, list[Skill]()
        names = {*pins, *(each.name for each in self._place.glob("[!.]*"))}
        for name in sorted(names & {only} if only else names):
            try:
                with directory_beneath(self.home, self._place / name) as directory:
                    skill = read(directory, name)
                wrong = "" if skill.digest == pins.get(name) else "it is not as it was added"
                found.append(replace(skill, wrong=wrong, content={}))
            except (OSError, WorkspaceError) as error:
                why = visible_name(getattr(error, "brief", str(error)))
                found.append(Skill(visible_name(name), wrong=why))
        return found

    def accept(self, skill: Skill) -> None:
        """Put what was read in its place, and pin it. Raises `WorkspaceError` for too many."""
        self._pins.mkdir(mode=0o700, exist_ok=True)
        if len({*(each.name for each in self._pins.iterdir()), skill.name}) > _SKILLS_MAX:
            raise _refused(f"there are {_SKILLS_MAX} already", "runner skills remove NAME")
        shutil.rmtree(copy := self._place / f".{skill.name}", ignore_errors=True)
        with file_errors(f"{skill.name} cannot be stored", "free some space", kind=WorkspaceError):
            for name, (runs, content) in skill.content.items():
                path = copy / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                path.chmod(0o755 if runs else 0o644)
            for above, _, _ in os.walk(copy):
                Path(above).chmod(0o755)
            self.remove(skill.name)
            copy.rename(self._place / skill.name)
            (self._pins / skill.name).write_text(skill.digest)

    def remove(self, name: str) -> None:
        """Remove all that there is of one that is `listed`. Idempotent."""
        (self._pins / name).unlink(missing_ok=True)
        shutil.rmtree(self._place / name, ignore_errors=True)
        (self._place / name).unlink(missing_ok=True)  # what is no directory
