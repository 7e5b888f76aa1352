"""The memory's secrets, and its server if it has one."""

import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from wire.errors import WireError

from runner.config.models import Config
from runner.doctor.finding import Finding, ok, problem, refused, warning
from runner.workspace.credentials import by_name, read_certificates, read_secrets

_SECRETS: Final = "memory secrets"
_SERVER: Final = "memory server"
_TIMEOUT_S: Final = 5.0
_HERE: Final = ("localhost", "127.0.0.1", "::1")


def memory(config: Config, user_id: str, environ: Mapping[str, str]) -> list[Finding]:
    """Whether the secrets are where the configuration says, and whether the server answers this
    host.

    The token is not tried; the agent does that when it starts.
    """
    settings = config.for_user(user_id)
    try:
        secrets = read_secrets(settings, environ)
        trusted = read_certificates(settings.memory.ca_file)
    except WireError as error:
        return [refused(_SECRETS, error)]
    named = [name for name, secret in by_name(secrets).items() if secret and "memory" in name]
    findings = [ok(_SECRETS, f"{' and '.join(named) or 'none'} configured")]
    if url := settings.memory.server_of(user_id):
        findings += _server(url, trusted, in_container=config.tier != "process")
    return findings


def _server(url: str, ca_pem: str, *, in_container: bool) -> list[Finding]:
    host = urlsplit(url).hostname or ""
    if in_container and host in _HERE:
        return [
            problem(
                _SERVER,
                f"{host} is the egress guest itself in the container tiers",
                "name the server by an address that containers reach, such as the bridge's",
            )
        ]
    findings = [_answers(url, ca_pem)]
    if url.startswith("http:") and host not in _HERE:
        findings.append(
            warning(
                _SERVER,
                f"the memory and its token travel unencrypted to {host}",
                "use https:// or libsql://, unless that network is yours alone",
            )
        )
    return findings


def _answers(url: str, ca_pem: str) -> Finding:
    context = ssl.create_default_context(cadata=ca_pem or None)
    if ca_pem:
        context.load_default_certs()
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S, context=context):  # noqa: S310
            pass
    except urllib.error.HTTPError:
        pass  # any answer will do, also an error for its front page
    except ssl.SSLError as error:
        return _unreachable(url, str(error), certificate=True)
    except OSError as error:
        reason = getattr(error, "reason", error)
        return _unreachable(url, str(reason), certificate=isinstance(reason, ssl.SSLError))
    return ok(_SERVER, f"{url} answers")


def _unreachable(url: str, why: str, *, certificate: bool) -> Finding:
    fix = (
        "name the certificate that signed it in memory.ca_file"
        if certificate
        else f"start it or correct memory.remote_url; try: curl -v {url}"
    )
    return problem(_SERVER, f"{url} cannot be reached ({why})", fix)
