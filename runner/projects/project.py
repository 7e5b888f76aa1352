"""A directory of the operator's that agent and shell see as `/projects/NAME`.

It is checked when it is opened, over no link, and again before each launch. What stands there
then is compared inside the guests by device and inode. Behind its row of the mount table is one
that is read-only for each wall that is there.
"""

import errno
import hashlib
import os
import pwd
import re
import shlex
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Final

import platformdirs
from pydantic import BaseModel
from wire.errors import Code
from wire.kernel.mounts import mounts
from wire.settings import PROJECT_PATTERN, ProjectSettings
from wire.text import visible_name
from wire.tools import PROJECT_TAG, PROJECTS
from wire.v1 import bootstrap_pb2

from runner.config.loading import own_file
from runner.config.models import Config
from runner.config.trust import own_accounts
from runner.errors import WorkspaceError
from runner.projects import git, hiding
from runner.projects.mapped import MappedMounts
from runner.projects.survey import Survey, doors, look
from runner.workspace.beneath import status_beneath
from runner.workspace.directories import descriptor
from runner.workspace.mounts import Access, BoundMount, Mount

WALLS: Final = (".git", ".vscode", ".idea", ".devcontainer", ".hg", ".jj")
"""What git, its like and editors read by themselves when their user only opens the directory."""
_WALLS_MAX: Final = 32
_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY
_OF_KERNEL: Final = ("/proc", "/sys")
_OF_SYSTEM: Final = ("/dev", "/run/docker.sock", "/run/containerd", "/run/podman")
_PEOPLE: Final = 1000
"""From this uid on, accounts are those of people."""
_READ_BY_OTHERS: Final = stat.S_IROTH | stat.S_IXOTH
_FOR_ALL: Final = stat.S_IWOTH | stat.S_ISVTX

Identity = tuple[int, int]
"""Device and inode."""


@dataclass(frozen=True)
class Surroundings:
    """What no project may be, hold or lie in, by what it is called; and who can be its owner.

    `apart` neither lie in a project nor hold one, `outside` lie in none, `programs` in none that
    guests may write to.
    """

    apart: dict[Path, str]
    outside: dict[Path, str] = field(default_factory=dict)
    programs: Collection[Path] = ()
    environ: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Config, environ: Mapping[str, str], *further: Path) -> "Surroundings":
        """Of a runner with these settings; `further` are directories of its own."""
        own = (
            *(config.workspace_root, *further, own_file().parent),
            *(platformdirs.user_data_path("oxydra"), platformdirs.user_state_path("oxydra")),
            platformdirs.user_cache_path("oxydra"),
        )
        files = [Path.cwd() / own_file().name, *_paths_in(config)]
        files += [config.file] if config.file else []
        system = {f"/run/user/{os.getuid()}", *_OF_SYSTEM}
        return cls(
            apart={
                **dict.fromkeys(map(Path, _OF_KERNEL), "files of the kernel"),
                **dict.fromkeys(own, "files of Oxydra's own"),
            },
            outside={
                **{Path(home): "the home directory of an account" for home in _homes(environ)},
                **dict.fromkeys(map(Path, system), "of the system"),
                **dict.fromkeys(files, "a file that Oxydra's settings name"),
            },
            programs=_programs(),
            environ=environ,
        )


@dataclass(frozen=True)
class Project:
    """One checked directory. `writable`: guests may write there. `reason` says why they may not,
    though it was asked for.

    `walls` is what they can only read in one that is writable, below it, and `held` which things
    those are. `source` is what drivers mount, if that is not `path`: the same directory with other
    ids. `survey` says what lies in it.
    """

    name: str
    path: Path
    owner: tuple[int, int]
    directory: Identity
    writable: bool
    reason: str = ""
    held: Mapping[str, Identity] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    lifted: tuple[str, ...] = ()
    keeps_notes: bool = False
    survey: Survey = field(default_factory=Survey)
    source: Path | None = None
    covered: hiding.Covered = field(default_factory=dict)
    covers: tuple[BoundMount, ...] = ()
    """The rows of what is hidden; see `now`."""

    @property
    def walls(self) -> tuple[str, ...]:
        return tuple(self.held)

    @property
    def _mounted_walls(self) -> dict[str, Identity]:
        """Those that are mounts, as neither the whole nor something empty is there instead."""
        shown = self.held.items() if self.writable else ()
        return {
            wall: identity
            for wall, identity in shown
            if self.covered.keys().isdisjoint((path := PurePosixPath(wall), *path.parents))
        }

    @property
    def secrets(self) -> list[str]:
        """What may be a secret and is not hidden."""
        return [each for each in self.survey.secrets if each not in self.hidden]

    @property
    def virtual(self) -> str:
        return f"/{PROJECTS}/{self.name}"

    @property
    def tag(self) -> str:
        """Of notes that are kept for this directory, by whatever name it is open."""
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()
        return f"{PROJECT_TAG}:{name_for(self.path)[:40]}-{digest[:8]}"

    @property
    def notices(self) -> Iterator[str]:
        """What the operator should know before an agent works in it."""
        this, seen = f"the project {self.name} ({visible_name(str(self.path))})", self.survey
        if self.reason:
            yield f"{this} is read-only: {self.reason}"
        if self.secrets:
            yield (
                f"{this} may hold secrets, which the agent can read: {_listed(self.secrets)}; so "
                f'that it cannot: hide = ["{visible_name(self.secrets[0])}"]'
            )
        if packages := [each for each in seen.shared if each in self.held and self.writable]:
            yield (
                f"{_listed(packages)} in {this} can only be read, because files there are those of "
                "a cache of all projects, too; to write there: "
                f'lift = ["{visible_name(packages[0])}"]'
            )
        if seen.linked and self.writable:
            yield (
                f"{this} has files with other names elsewhere ({seen.linked:,}), and what is "
                f"written to them is written there, too: {_listed(seen.names)}"
            )
        if seen.unfinished:
            yield f"{this} is large: {seen.unfinished}; what else lies in it is not named here"

    @property
    def rows(self) -> tuple[BoundMount, ...]:
        """In the mount tables of agent and shell."""
        where = self.source or self.path
        access = Access.READ_WRITE if self.writable else Access.READ_ONLY
        whole = Mount("project", "", self.virtual, access)
        walls = self._mounted_walls
        return (
            BoundMount(whole, where, self.directory),
            *(
                BoundMount(
                    Mount("wall", "", f"{self.virtual}/{wall}", Access.READ_ONLY),
                    where / wall,
                    identity,
                )
                for wall, identity in walls.items()
            ),
            *self.covers,
        )

    def message(self, path: str, *, numbered: bool) -> bootstrap_pb2.Project:
        """What the agent is told, for which it lies at `path`, with the same numbers if it is
        `numbered`."""
        device, inode = self.directory
        return bootstrap_pb2.Project(
            name=self.name,
            path=path,
            writable=self.writable,
            directory=bootstrap_pb2.Directory(device=device, inode=inode) if numbered else None,
            walls=self.walls,
            hidden=self.hidden,
            lifted=self.lifted,
            tag=self.tag,
            keeps_notes=self.keeps_notes,
        )

    def now(self, home: Path) -> "Project":
        """The same, with rows for what is hidden and is there now. `home` is the workspace. Raises
        `WorkspaceError`."""
        if not self.hidden:
            return self
        with opened(self.path) as (directory, _):
            covered = hiding.look(directory, self.hidden)
            walls, where = self.held if self.writable else ["."], self.source or self.path
            found = hiding.rows(home, self.virtual, where, directory, covered, walls)
            return replace(self, covered=covered, covers=tuple(found))

    def uncovered(self) -> str:
        """A path at which something else stands than `now` has found; empty if there is none."""
        try:
            with opened(self.path) as (directory, _):
                found = hiding.look(directory, self.hidden)
        except WorkspaceError:
            return ", ".join(self.hidden)
        return next((str(path) for path in found if found[path] != self.covered[path]), "")

    def check(self, *, mounts_below: bool) -> None:
        """Look again whether it is what was opened. Raises `WorkspaceError`."""
        with opened(self.path) as (directory, _):
            walls = self._mounted_walls
            now = {"": os.fstat(directory), **_found(directory, walls)}
            meant = {"": self.directory, **walls}
            for wall, identity in meant.items():
                if _identity(now.get(wall)) != identity:
                    raise refused(
                        self.path / wall,
                        f"something else stands there since the project {self.name} was opened",
                        "runner restart, which opens it again",
                    )
            if mounts_below:
                check_below(self.path, directory)


def open_project(
    name: str,
    wanted: ProjectSettings,
    around: Surroundings,
    others: Iterable[Project] = (),
    *,
    mounts_below: bool,
) -> Project:
    """Check a directory. With `mounts_below` guests would see what is mounted below it; then
    nothing may be. Blocks for seconds. Raises `WorkspaceError` that says which directory would do.
    """
    if not re.fullmatch(PROJECT_PATTERN, name):
        raise refused(wanted.path, f"{name!r} is no name", "use letters, digits, . _ and -")
    with opened(wanted.path) as (directory, way):
        found = os.fstat(directory)
        path = wanted.path
        _check_owner(path, found, way, around)
        chain = [_identity(each) for each in (*way, found)]
        _check_place(path, chain, around, others)
        if mounts_below:
            check_below(path, directory)
        reason = _why_read_only(directory, chain, around) if wanted.write else ""
        seen = look(directory)
        if sockets := sorted(set(seen.sockets) - set(wanted.hide)):
            raise refused(
                path,
                f"a program serves {_listed(sockets)}, and commands could talk to it",
                f"end that program, or: hide = {list(sockets)}",
            )
        walls, why = _walls(path, directory, set(wanted.lift), seen.shared)
        reason = reason or (why if wanted.write else "")
        return Project(
            name=name,
            path=path,
            owner=(found.st_uid, found.st_gid),
            directory=(found.st_dev, found.st_ino),
            writable=wanted.write and not reason,
            reason=reason,
            held=walls,
            hidden=wanted.hide,
            covered=hiding.look(directory, wanted.hide),
            lifted=wanted.lift,
            keeps_notes=wanted.notes == "project",
            survey=seen,
        )


def for_guest(project: Project, guest: tuple[int, int], mapped: MappedMounts) -> Project:
    """The same as a guest with this uid and gid can use it, who is its owner there where that can
    be. Raises `WorkspaceError` where it cannot even read it."""
    if project.owner[0] == guest[0]:
        return project
    with opened(project.path) as (directory, _):
        if _identity(os.fstat(directory)) != project.directory:
            raise refused(project.path, "it was replaced just now", "try again")
        source = mapped.source_for(
            project.name, project.path, directory, guest, writable=project.writable
        )
    if source.path != project.path:
        return replace(project, source=source.path)
    quoted, why = shlex.quote(str(project.path)), f"it belongs to uid {project.owner[0]}"
    why += f", and commands run as uid {guest[0]}"
    others = project.path.stat().st_mode & _READ_BY_OTHERS == _READ_BY_OTHERS
    listed = "system.posix_acl_access" in os.listxattr(project.path, follow_symlinks=False)
    if not (others or listed):
        allow = f"setfacl -R -m u:{guest[0]}:rX,d:u:{guest[0]}:rX {quoted}"
        raise refused(project.path, why, allow)
    return replace(project, writable=source.writable, reason=source.reason or project.reason)


def open_all(
    wanted: Mapping[str, ProjectSettings],
    around: Surroundings,
    guest: tuple[int, int],
    mapped: MappedMounts,
    *,
    mounts_below: bool,
    required: Collection[str] = (),
) -> tuple[tuple[Project, ...], list[str]]:
    """Those that can be opened, for a guest with this uid and gid, and what there is to know of
    all. Raises `WorkspaceError` for one of the `required`."""
    found, notices = list[Project](), list[str]()
    for name, settings in wanted.items():
        try:
            project = open_project(name, settings, around, found, mounts_below=mounts_below)
            found.append(for_guest(project, guest, mapped))
            notices += found[-1].notices
        except WorkspaceError as error:
            if name in required:
                raise
            why = f"{error.brief}: {error.details}; {error.resolution}"
            notices.append(f"the project {name} is not open: {why}")
    mapped.keep(project.name for project in found)
    return tuple(found), notices


def name_for(path: Path, taken: Collection[str] = ()) -> str:
    """A name for the directory `path` that is none of those `taken`."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", path.name).strip("._-")[:56] or "project"
    numbered = (f"{plain}-{number}" for number in range(2, len(taken) + 3))
    return next(name for name in (plain, *numbered) if name not in taken)


@contextmanager
def opened(path: Path) -> Iterator[tuple[int, list[os.stat_result]]]:
    """A descriptor of the directory `path`, entered over no link, and what was found on the way
    from the root. Raises `WorkspaceError`."""
    if not path.is_absolute() or ".." in path.parts or path == Path("/"):
        raise refused(path, "it is not the whole path of a directory", "name one below /")
    here, way = os.open("/", _DIRECTORY), list[os.stat_result]()
    try:
        for number, part in enumerate(path.parts[1:], 2):
            way.append(os.fstat(here))
            try:
                below = os.open(part, _DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            except OSError as error:
                raise _unopened(path, Path(*path.parts[:number]), error) from None
            os.close(here)
            here = below
        yield here, way
    finally:
        os.close(here)


def _unopened(path: Path, at: Path, error: OSError) -> WorkspaceError:
    if at.is_symlink():
        fix = f"name the directory itself: {os.path.realpath(path)}"
        return refused(path, f"{at} is a link", fix)
    is_file = error.errno == errno.ENOTDIR
    fix = f"name the directory: {at.parent}" if is_file else "name one that you may enter"
    return refused(path, f"{at}: {error.strerror}", fix)


def _check_owner(
    path: Path, found: os.stat_result, way: Iterable[os.stat_result], around: Surroundings
) -> None:
    """A runner that is root opens what belongs to any account."""
    if found.st_uid != os.geteuid() != 0:
        raise refused(
            path,
            f"it belongs to uid {found.st_uid}, and the runner runs as uid {os.geteuid()}",
            "name a directory of your own",
        )
    ours = own_accounts(around.environ) | {found.st_uid}
    for each, at in zip((*way, found), reversed((path, *path.parents)), strict=True):
        if each.st_uid not in ours:
            why, fix = f"{at} belongs to uid {each.st_uid}", "a directory that only you can replace"
            raise refused(path, f"{why}, who could replace it", f"name {fix}")
        if each.st_mode & _FOR_ALL == stat.S_IWOTH:
            raise refused(path, f"every account can replace what is in {at}", f"chmod o-w {at}")


def _check_place(
    path: Path, chain: list[Identity], around: Surroundings, others: Iterable[Project]
) -> None:
    this = chain[-1]
    for place, label in (around.outside | around.apart).items():
        is_apart, found = place in around.apart, _chain(place)
        if is_apart and place.exists() and found[0] in chain:
            raise refused(path, f"{place} has {label}", "name a directory outside of it")
        if this in found and (is_apart or place.exists()):
            fix = f"name a directory below it, such as {path}/src"
            raise refused(path, f"it is or holds {place}: {label}", fix)
    for other in others:
        if other.directory in chain or this in _chain(other.path):
            fix = f"close that one, or name a directory beside {other.path}"
            raise refused(path, f"the project {other.name} is {other.path}", fix)


def _chain(place: Path) -> list[Identity]:
    """What a place is, if it is there, and each directory around it, also where links lead."""
    found = []
    for start in {place, Path(os.path.realpath(place))}:
        for each in (start, *start.parents):
            with suppress(OSError):
                found.append(_identity(each.stat()))
    return found


def _why_read_only(directory: int, chain: list[Identity], around: Surroundings) -> str:
    """Why commands must not or cannot write there at all."""
    if os.fstatvfs(directory).f_flag & os.ST_RDONLY:
        return "its file system is mounted read-only"
    for program in around.programs:
        if chain[-1] in _chain(program) or _identity(program.stat()) in chain:
            return (
                f"Oxydra itself runs from {program}, and commands could change what confines them; "
                "install it outside of the project: https://pipx.pypa.io"
            )
    return ""


def check_below(path: Path, directory: int) -> None:
    """Raises `WorkspaceError` if something is mounted below an open directory."""
    real = str(Path(f"/proc/self/fd/{directory}").readlink())
    for point in (mount.point for mount in mounts()):
        if point.startswith(f"{real.rstrip('/')}/"):
            raise refused(
                path,
                f"something is mounted at {visible_name(point)}, and guests would see it",
                f"umount {shlex.quote(point)}, name a directory beside it, or, in containers: "
                "runner --tier container",
            )


def _walls(
    path: Path, directory: int, lifted: set[str], shared: Iterable[str]
) -> tuple[dict[str, Identity], str]:
    """What is read-only below a project, and why the whole must be; "" if it need not."""
    wanted = [*WALLS, *_inside(path, git.places(path))]
    found: dict[str, Identity] = {}
    for wall in wanted:  # links in walls lead to further ones
        if wall in found or wall in lifted:
            continue
        try:
            seen = os.stat(wall, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            continue
        files, links, why = list[str](), list[str](), ""
        if wall == ".":
            return {}, "git runs hooks that lie in it: git config core.hooksPath .githooks"
        if stat.S_ISDIR(seen.st_mode):
            try:
                with descriptor(wall, os.O_RDONLY | os.O_DIRECTORY, directory) as opening:
                    files, links = doors(opening)
            except OSError as error:
                why = f"{wall} cannot be looked through ({error.strerror})"
        elif not stat.S_ISREG(seen.st_mode):
            why = f"{wall} is neither a directory nor a file"
        if files or (stat.S_ISREG(seen.st_mode) and seen.st_nlink > 1):
            other = visible_name("/".join((wall, *files[:1])))
            why = f"{other} has another name, by which it could be written"
        if why:
            return {}, f"{why}; to let commands write to it: lift = ['{wall}']"
        found[wall] = _identity(seen)
        wanted += _inside(path, (path / wall / link for link in links))
    inside = [each for each in shared if each not in lifted and each.partition("/")[0] not in found]
    for place, seen in _found(directory, inside).items():
        found[place] = _identity(seen)
    if len(found) > _WALLS_MAX:
        return {}, f"it has more than {_WALLS_MAX} directories that must be read-only"
    return found, ""


def _inside(path: Path, places: Iterable[Path]) -> Iterator[str]:
    """The entries of a project in which these places are, by their names and where links lead; "."
    is the project. The whole entry: who can rename a directory can put another in its place."""
    for place in places:
        for named in (place, Path(os.path.realpath(place))):
            if named.is_relative_to(path):
                yield (*named.relative_to(path).parts, ".")[0]


def _found(directory: int, names: Iterable[str]) -> dict[str, os.stat_result]:
    """Those of these paths below an open directory that are there, over no link."""
    found = {}
    for name in names:
        with suppress(OSError):
            found[name] = status_beneath(directory, PurePath(name))
    return found


def _identity(found: os.stat_result | None) -> Identity:
    return (found.st_dev, found.st_ino) if found is not None else (0, 0)


def _listed(paths: Collection[str]) -> str:
    shown = [visible_name(each)[:200] for each in list(paths)[:5]]
    return ", ".join(shown) + (", …" if len(paths) > len(shown) else "")


def _homes(environ: Mapping[str, str]) -> set[str]:
    people = {each.pw_dir for each in pwd.getpwall() if each.pw_uid >= _PEOPLE or not each.pw_uid}
    own = {environ.get("HOME", ""), os.path.expanduser("~")}  # noqa: PTH111 - may have none
    return {each for each in people | own if each.startswith("/") and each.strip("/")}


def _programs() -> set[Path]:
    """Where this installation is."""
    packages = (sys.modules.get(name) for name in ("runner", "wire", "pydantic", "grpc"))
    files = (each.__file__ for each in packages if each is not None and each.__file__)
    found = {Path(file).parent for file in files}
    return {each for each in (*found, Path(sys.prefix), Path(sys.base_prefix)) if each.is_dir()}


def _paths_in(settings: Any) -> Iterator[Path]:
    """Every path that settings name, but those of projects."""
    if isinstance(settings, Path):
        yield settings
    elif isinstance(settings, Mapping):
        for value in settings.values():
            yield from _paths_in(value)
    elif isinstance(settings, BaseModel) and not isinstance(settings, ProjectSettings):
        for _, value in settings:
            yield from _paths_in(value)


def refused(path: Path, why: str, fix: str) -> WorkspaceError:
    """The error for a directory that cannot be a project, or not any more."""
    brief = f"cannot use {visible_name(str(path))} as a project"
    return WorkspaceError(Code.FAILED_PRECONDITION, brief, details=why, resolution=fix)
