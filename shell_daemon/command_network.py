"""What commands have of the outside: a port to egress, whom they trust, variables and files."""

import contextlib
import logging
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from wire.disk import held
from wire.egress.forwarder import EgressAddress, Forwarder
from wire.endpoint import Endpoint
from wire.errors import Code, WireError
from wire.identity import Identity, Party, name_of
from wire.v1 import shell_pb2

from shell_daemon import limits
from shell_daemon.limits import Settings

log = logging.getLogger(__name__)

_PROXY: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_NOT_PROXIED: Final = "localhost,127.0.0.1,::1"
_TRUST: Final = (
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT"),
    *("NODE_EXTRA_CA_CERTS", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE"),
)
_BUNDLE: Final = "oxydra-certificates-"
"""What the name of the file begins with; commands cannot know the rest before it is there."""
_BUNDLES_MAX: Final = 3
SYSTEM_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/certs/ca-bundle.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)
_LIST: Final = ".oxydra-files"
"""In the home directory: which files there are egress's, for the next daemon. Commands can change
it; what is in it, they could remove themselves."""
_LIST_MAX_BYTES: Final = 64 * 1024
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class CommandNetwork:
    """As the runner has set it last; before that, and with an empty endpoint, nothing."""

    def __init__(self, settings: Settings, identity: Identity) -> None:
        self._settings = settings
        self._forwarder = Forwarder(identity)
        self._environment: dict[str, str] = {}
        self._bundles: list[Path] = []

    def set(self, request: shell_pb2.SetEgressRequest) -> None:
        """Replace everything. New connections of running commands use it too, and files are there
        at once; variables are those of commands that start later. Raises `WireError`."""
        egress = _address(request)
        limits.check_environment(request.environment)
        limits.check_files(request.files)
        environment = dict(request.environment)
        if egress is not None and request.authority_pem:
            bundle = self._write_bundle(request.authority_pem)
            environment = {**dict.fromkeys(_TRUST, str(bundle)), **environment}
        self._write_files(request.files)
        self._environment = environment
        self._forwarder.egress = egress

    def clear(self) -> None:
        """Remove the files of the daemon before this one, which may not come again."""
        with contextlib.suppress(OSError, WireError):
            self._write_files({})

    @contextmanager
    def opened(
        self, session_id: str, turn_id: str, on_refused: Callable[[str], None]
    ) -> Iterator[Mapping[str, str]]:
        """A way out for one command, open until the context ends; yields the variables for it.
        `on_refused` is told why something did not go out."""
        if self._forwarder.egress is None:
            yield self._environment
            return
        try:
            port = self._forwarder.open(session_id, turn_id, on_refused)
        except OSError as error:
            raise WireError(
                Code.RESOURCE_EXHAUSTED, f"no port for a way out: {error.strerror}"
            ) from None
        try:
            yield {**_variables(port.url), **self._environment}
        finally:
            port.close()

    def _write_bundle(self, authority: str) -> Path:
        """The system's certificates and `authority`, in one file."""
        system = next((Path(each) for each in _system_bundles() if Path(each).is_file()), None)
        try:
            trusted = system.read_text() if system is not None else ""
            made, name = tempfile.mkstemp(".pem", _BUNDLE, self._settings.run)
            with os.fdopen(made, "w") as file:
                file.write(f"{trusted.rstrip()}\n{authority}".lstrip())
        except OSError as error:
            raise WireError(
                Code.FAILED_PRECONDITION,
                f"the certificates for commands cannot be written: {error.strerror}",
                details=f"in {self._settings.run}: only a command can have filled or closed it",
                resolution="runner restart --role shell",
            ) from None
        self._bundles.append(Path(name))
        for old in self._bundles[:-_BUNDLES_MAX]:  # commands that run may still read the others
            self._bundles.remove(old)
            with contextlib.suppress(OSError):  # a command may have put something else there
                old.unlink()
        return self._bundles[-1]

    def _open_home(self) -> int:
        """A descriptor of the directory that commands have as their home. Raises `WireError`."""
        home = self._settings.tmp
        try:
            if home.is_symlink():  # of the image, into a pod's volume; nothing there is followed
                home = home.parent / home.readlink()
            return os.open(home, _DIRECTORY)
        except OSError as error:
            raise WireError(
                Code.FAILED_PRECONDITION,
                f"the home of commands cannot be opened: {error.strerror}",
                details=f"{home}: only a command can have put something else there",
                resolution="runner restart --role shell",
            ) from None

    def _write_files(self, files: Mapping[str, bytes]) -> None:
        """A file that cannot be written, because of what a command has put there, is left out."""
        listed = {_LIST: "\n".join(files).encode()} if files else {}
        wanted = {**listed, **files}
        with held(self._open_home()) as home:
            for name in sorted(_listed(home) - set(wanted)):
                with contextlib.suppress(OSError), _parent(home, name) as (directory, last):
                    os.unlink(last, dir_fd=directory)
            for name, content in wanted.items():
                try:
                    _write(home, name, content)
                except OSError as error:
                    log.warning("~/%s cannot be written for commands: %s", name, error.strerror)


def _address(request: shell_pb2.SetEgressRequest) -> EgressAddress | None:
    if not request.door:
        return None
    limits.check_token(request.token)
    try:
        name = name_of(Party.EGRESS, request.door_launch_id)
    except WireError as error:
        raise limits.refused("door_launch_id", "no certificate names it", error.details) from None
    try:
        place = Endpoint.of_target(request.door, request.door_launch_id)
    except WireError as error:
        raise limits.refused("door", error.brief, error.details) from None
    return EgressAddress(place, request.token, name)


def _variables(proxy: str) -> dict[str, str]:
    """What tells programs of the proxy. Node.js takes notice of it only if it is told so."""
    variables = {**dict.fromkeys(_PROXY, proxy), "NO_PROXY": _NOT_PROXIED}
    variables |= {name.lower(): value for name, value in variables.items()}
    return {**variables, "NODE_USE_ENV_PROXY": "1"}


def _system_bundles() -> tuple[str, ...]:
    return (*SYSTEM_BUNDLES, ssl.get_default_verify_paths().cafile or SYSTEM_BUNDLES[0])


def _listed(home: int) -> set[str]:
    """The files that were written before, and the list of them; none if there is no list, and the
    list alone if a command has spoilt it."""
    try:
        descriptor = os.open(_LIST, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=home)
    except OSError:
        return set()
    try:
        with held(descriptor):
            names = os.read(descriptor, _LIST_MAX_BYTES).decode().split("\n")
        limits.check_files(dict.fromkeys(names, b""))
    except (OSError, UnicodeDecodeError, WireError):
        return {_LIST}
    return {*names, _LIST}


@contextmanager
def _parent(home: int, name: str) -> Iterator[tuple[int, str]]:
    """The directory of a file below `home`, opened through no link, and the file's name there.
    Directories that are missing are made. Raises `OSError`."""
    *above, last = name.split("/")
    directory = os.dup(home)
    try:
        for part in above:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=directory)
            below = os.open(part, _DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = below
        yield directory, last
    finally:
        os.close(directory)


def _write(home: int, name: str, content: bytes) -> None:
    with _parent(home, name) as (directory, last):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(last, dir_fd=directory)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with held(os.open(last, flags, 0o600, dir_fd=directory)) as descriptor:
            os.write(descriptor, content)
