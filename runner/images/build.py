"""Building images with the engine's API, one step of the Dockerfile after another."""

import hashlib
import io
import re
import tarfile
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import IO, Any, Final

import docker
import docker.errors
import requests
from wire.errors import Code

from runner.errors import TierError
from runner.images import wheels
from runner.images.archive import inspected
from runner.images.naming import USUAL_ROLES, ImageRole, dockerfile, image_name, requirements

BUILD_TOOLS: Final = "build-essential python3-dev pkg-config"
_PACKAGE: Final = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_LAST_LINES: Final = 30
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_STAGE: Final = "oxydra.stage=build"
_CONTENT: Final = "oxydra.content"
"""A label with a hash of everything that an image is made from."""


class Progress:
    """Receives the progress of a build. A subclass shows it."""

    def step(self, role: str, line: str) -> None:
        """The build of `role` has reached `line`."""

    def done(self, role: str) -> None:
        """The image of `role` is ready."""


@dataclass(frozen=True)
class Recipe:
    """What to build, and from what. With `wheelhouse` None, wheels are made on this host."""

    images: str
    base: str
    roles: Sequence[ImageRole] = USUAL_ROLES
    wheelhouse: Path | None = None
    build_tools: bool = False
    packages: Sequence[str] = ()
    """More packages of Debian's in the shell's image."""
    any_model: bool = False
    """Whether the embedder takes other models than the default one."""


def build_images(engine: docker.APIClient, recipe: Recipe, progress: Progress) -> None:
    """Build the images of all roles in parallel, then remove what only the build needed.

    An image that was made from the same content is kept. Raises `TierError`: INVALID_ARGUMENT for
    what cannot be a package's name, INTERNAL with the last lines of the failing step, or
    UNAVAILABLE if the base cannot be had; images that are done stay.
    """
    for name in recipe.packages:
        if not _PACKAGE.fullmatch(name):
            raise TierError(
                Code.INVALID_ARGUMENT,
                f"{name!r} is not a package of Debian's",
                details="a name has small letters, digits, + - and ., and two of them at least",
                resolution="runner images build --with PACKAGE",
            )
    base_id = _have_base(engine, recipe.base, progress)
    with tempfile.TemporaryDirectory(prefix="oxydra-wheels-") as scratch:
        directory = Path(scratch)
        if recipe.wheelhouse is None:
            progress.step("wheels", "building oxydra")
            pip = wheels.Pip(directory)
            given = [wheels.own_wheel(pip, directory)]
        else:
            given = wheels.given(recipe.wheelhouse)

        def make(role: ImageRole) -> None:
            def collected() -> list[Path]:
                if recipe.wheelhouse is not None:
                    return given
                progress.step(role, "collecting wheels")
                return wheels.collect(
                    pip, [role], given[0], directory / role, any_model=recipe.any_model
                )

            _make(engine, recipe, role, _content(recipe, role, base_id, given), collected, progress)

        first = [role for role in recipe.roles if role is not ImageRole.SHELL_POD]
        with ThreadPoolExecutor(len(recipe.roles), thread_name_prefix="image") as pool:
            failures = [task.exception() for task in [pool.submit(make, role) for role in first]]
        if ImageRole.SHELL_POD in recipe.roles and not any(failures):
            _build_for_pods(engine, recipe, progress)
    _drop_leftovers(engine, recipe.roles)
    for failure in failures:
        if failure is not None:
            raise failure


def _build_for_pods(engine: docker.APIClient, recipe: Recipe, progress: Progress) -> None:
    """The shell's image for pods is made from the shell's image, which must be there."""
    role, base = ImageRole.SHELL_POD, image_name(recipe.images, ImageRole.SHELL)
    if (found := inspected(engine, base)) is None:
        raise TierError(
            Code.FAILED_PRECONDITION,
            f"there is no image {base}, from which the {role} image is made",
            resolution=f"runner images build --role {ImageRole.SHELL} --role {role}",
        )
    recipe = replace(recipe, base=base)
    _make(engine, recipe, role, _content(recipe, role, str(found["Id"]), ()), tuple, progress)


def _content(recipe: Recipe, role: ImageRole, base_id: str, files: Sequence[Path]) -> str:
    """A hash of everything that decides the content of an image. The wheels of dependencies
    follow from the role's requirements."""
    digest = hashlib.sha256()
    arguments = sorted(_arguments(recipe, role).items())
    digest.update(f"{base_id} {arguments} {dockerfile(role)}".encode())
    for file in [*sorted(files), requirements(role, any_model=recipe.any_model)]:
        digest.update(file.name.encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _arguments(recipe: Recipe, role: ImageRole) -> dict[str, str]:
    arguments = {"BASE_IMAGE": recipe.base, "OXYDRA_VERSION": installed_version("oxydra")}
    if role is ImageRole.SHELL and recipe.build_tools:
        arguments["BUILD_TOOLS"] = BUILD_TOOLS
    if role is ImageRole.SHELL and recipe.packages:
        arguments["PACKAGES"] = " ".join(sorted(set(recipe.packages)))
    if role is ImageRole.EMBEDDER and recipe.any_model:
        arguments["EXTRA"] = f"{wheels.EXTRAS[role]},{wheels.ANY_MODEL}"
    return arguments


def _have_base(engine: docker.APIClient, base: str, progress: Progress) -> str:
    """Pull the base if it is missing, and return its id."""
    if (image := inspected(engine, base)) is not None:
        return str(image["Id"])
    progress.step("base", f"pulling {base}")
    try:
        for message in engine.pull(base, stream=True, decode=True):
            if error := message.get("error"):
                raise docker.errors.DockerException(error)
    except docker.errors.DockerException as error:
        raise TierError(
            Code.UNAVAILABLE,
            f"there is no base image {base}, and it cannot be pulled",
            details=_said_by(error),
            resolution="where no registry can be reached, as root: "
            "runner images build --bootstrap-base",
        ) from None
    progress.done("base")
    return str(engine.inspect_image(base)["Id"])  # type: ignore[no-untyped-call]


def _make(
    engine: docker.APIClient,
    recipe: Recipe,
    role: ImageRole,
    content: str,
    packages: Callable[[], Sequence[Path]],
    progress: Progress,
) -> None:
    """Build an image, unless there is one of the same `content`."""
    name = image_name(recipe.images, role)
    image = inspected(engine, name) or {"Config": {}}
    if (image["Config"].get("Labels") or {}).get(_CONTENT) == content:
        progress.step(role, "unchanged")
        return progress.done(role)
    try:
        with build_context(dockerfile(role), packages()) as context:
            stream = engine.build(
                fileobj=context,
                custom_context=True,
                tag=name,
                buildargs=_arguments(recipe, role),
                labels={_CONTENT: content},
                network_mode="host",
                rm=True,
                forcerm=True,
                decode=True,
            )
            _follow(stream, role, recipe, progress)
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        raise _failed(role, recipe, _said_by(error)) from None
    return progress.done(role)


def _follow(
    stream: Iterator[Mapping[str, Any]], role: ImageRole, recipe: Recipe, progress: Progress
) -> None:
    said: deque[str] = deque(maxlen=_LAST_LINES)
    for message in stream:
        if error := message.get("error"):
            raise _failed(role, recipe, "\n    ".join([*said, str(error)]))
        text = _COLOUR.sub("", str(message.get("stream") or message.get("status") or ""))
        for line in filter(None, map(str.strip, text.splitlines())):
            said.append(line)
            if line.startswith("Step "):
                said.clear()
                said.append(line)
                progress.step(role, line)


def _failed(role: ImageRole, recipe: Recipe, details: str) -> TierError:
    return TierError(
        Code.INTERNAL,
        f"the {role} image cannot be built from {recipe.base}",
        details=details,
        resolution="fix what the step reports, then: runner images build",
    )


def _said_by(error: Exception) -> str:
    return getattr(error, "explanation", None) or str(error)


def _drop_leftovers(engine: docker.APIClient, roles: Sequence[ImageRole]) -> None:
    """Remove the stages that hold the wheels, and replaced images that nothing uses."""
    for label in (_STAGE, *(f"oxydra.role={role}" for role in roles)):
        engine.prune_images({"dangling": True, "label": [label]})  # type: ignore[no-untyped-call]


@contextmanager
def build_context(dockerfile: str, wheels: Iterable[Path]) -> Iterator[IO[bytes]]:
    """The Dockerfile and its wheels as one tar file, open at its start.

    Owners, modes and times are fixed, so that equal input gives equal layers.
    """
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w") as tar:
            entry = tarfile.TarInfo("Dockerfile")
            text = dockerfile.encode()
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
            for wheel in sorted(wheels):
                tar.add(wheel.resolve(), f"wheels/{wheel.name}", filter=_anonymous)
        file.seek(0)
        yield file


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o644
    return entry
