"""`runner access create|list|revoke`: tokens for people who do not have this account."""

import re
import socket
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from wire.disk import store
from wire.errors import Code

from runner.access.scopes import Scope, bearer_of
from runner.access.sockets import SERVER_NAME, own_authority, read_pem
from runner.access.tokens import EXPIRES_DAYS, Token, Tokens, lifetime_of
from runner.cli.files import refuse_existing
from runner.cli.options import AsJson, Options
from runner.cli.output import print_json, print_table, table_of
from runner.client.access import ADDRESS, AccessFile
from runner.config.models import Config
from runner.config.users import check_known
from runner.errors import ConfigError, HostError
from runner.host.authority import names_in
from runner.logs import printable

access = typer.Typer()

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Of the token: the device or program that has it.")
]

_DEFAULT: Final = [Scope.CHAT, Scope.MEMORY]
_ANYWHERE: Final = ("0.0.0.0", "[::]")  # noqa: S104 - compared, not listened on


@access.command()
def create(
    context: typer.Context,
    name: Name,
    scope: Annotated[
        list[Scope], typer.Option(help="What it is for; give it again for several.")
    ] = _DEFAULT,
    expires: Annotated[
        str, typer.Option(help="After how long it ends, such as 12h, 30d or 8w.")
    ] = f"{EXPIRES_DAYS}d",
    file: Annotated[
        Path | None, typer.Option(help="Write the token there instead of showing it.")
    ] = None,
    header_file: Annotated[
        Path | None, typer.Option(help="Write there the header that curl -H @FILE sends.")
    ] = None,
    access_file: Annotated[
        Path | None, typer.Option(help="Write there what runner --connect FILE needs.")
    ] = None,
    address: Annotated[
        str, typer.Option(help="Where --access-file leads: HOST:PORT or unix:/PATH.")
    ] = "",
) -> None:
    """Make an access token, and show it this once, or write it into files."""
    options: Options = context.obj
    config = options.load()
    lifetime = lifetime_of(expires)
    check_known(config, options.user_id)
    files = [path for path in (file, header_file, access_file) if path is not None]
    for path in files:
        refuse_existing(path, force=False)
    if len(set(files)) < len(files):
        raise typer.BadParameter("each file has a name of its own")
    if address and access_file is None:
        raise typer.BadParameter("--address goes with --access-file")
    tokens = Tokens.locate(config)
    if access_file is not None:
        _check_listens(config)
        certificate, server_name = _trusted(config, tokens)
        reached = _address(config, address)
    token, secret = tokens.create(options.user_id, name, frozenset(scope), lifetime)
    if file is not None:
        store(file, f"{secret}\n")
    if header_file is not None:
        store(header_file, f"Authorization: Bearer {secret}\n")
    if access_file is not None:
        content = AccessFile(
            address=reached,
            server_name=server_name,
            certificate=certificate,
            token=secret,
            user_id=token.user_id,
            name=token.name,
            expires_at=token.expires_at,
        )
        store(access_file, f"{content.model_dump_json(indent=1)}\n")
    if not files:
        typer.echo(secret)
    for line in (
        f"{token.user_id}/{token.name}: {_listed(token)}, until {_shown(token.expires_at)}",
        bearer_of(token.user_id, token.scopes),
    ):
        typer.echo(printable(line), err=True)


@access.command("list")
def list_(context: typer.Context, json: AsJson = False) -> None:
    """List the tokens of all users, and when each was used last."""
    tokens = Tokens.locate(context.obj.load())
    used = tokens.last_used()
    found = sorted(tokens.all(), key=lambda token: (token.user_id, token.name))
    if json:
        print_json([token.listed(used.get(token.digest)) for token in found])
    elif found:
        rows = [_row(token, used.get(token.digest)) for token in found]
        print_table(table_of("user", "name", "scopes", "expires", "last used", rows=rows))
    else:
        typer.echo("nobody has an access token")


@access.command()
def revoke(context: typer.Context, name: Name) -> None:
    """Take a token back, at once: what is open with it ends too."""
    options: Options = context.obj
    tokens = Tokens.locate(options.load())
    if not tokens.revoke(options.user_id, name):
        fixes = [
            f"runner --user {token.user_id} access revoke {name}"
            for token in tokens.all()
            if token.name == name
        ]
        raise HostError(
            Code.NOT_FOUND,
            f"{options.user_id} has no token named {name}",
            resolution=" or ".join(fixes) or "runner access list",
        )
    typer.echo(f"revoked: {options.user_id}/{name}")


@access.command(hidden=True)
def serve() -> None:
    """Say which command lets people in."""
    raise HostError(
        Code.FAILED_PRECONDITION,
        "people with access files are let in by the HTTP server",
        details="it listens where [access] says, too; access files that are out stay valid",
        resolution="runner serve",
    )


def _trusted(config: Config, tokens: Tokens) -> tuple[str, str]:
    """The authority that clients trust, and the server's name; see `AccessFile`."""
    settings = config.access
    if settings.certificate is None:
        return own_authority(tokens).public, SERVER_NAME
    authority = (
        b"" if settings.authority is None else read_pem("access", "authority", settings.authority)
    )
    names = names_in(read_pem("access", "certificate", settings.certificate))
    return authority.decode("ascii", "replace"), next(iter(names), "")


def _check_listens(config: Config) -> None:
    if config.access.socket is None and not config.access.listen:
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            "no access file can be used: [access] sets no address",
            details="neither [access] socket nor [access] listen is set",
            resolution="set in runner.toml, for accounts of this machine: [access] socket = "
            '"/run/oxydra/access.sock" and socket_group = "GROUP"; for others: listen = '
            '"0.0.0.0:7443"',
        )


def _address(config: Config, given: str) -> str:
    if given:
        if not re.fullmatch(ADDRESS, given):
            raise typer.BadParameter(f"--address {given!r} is neither HOST:PORT nor unix:/PATH")
        return given
    if not config.access.listen:
        return f"unix:{config.access.socket}"
    host, _, port = config.access.listen.rpartition(":")
    return f"{socket.gethostname()}:{port}" if host in _ANYWHERE else config.access.listen


def _row(token: Token, used: str | None) -> tuple[str, ...]:
    end = "expired" if token.lifetime_s() <= 0 else _shown(token.expires_at)
    last = _shown(datetime.fromisoformat(used)) if used else "never"
    return token.user_id, token.name, _listed(token), end, last


def _listed(token: Token) -> str:
    return ", ".join(sorted(token.scopes))


def _shown(at: datetime) -> str:
    return at.astimezone().strftime("%Y-%m-%d %H:%M %Z")
