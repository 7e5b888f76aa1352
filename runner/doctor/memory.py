"""The memory's secrets, and its server if it has one."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlsplit

from wire.egress.loopback import handed
from wire.errors import WireError
from wire.memory_server import ABILITIES, FULL_TEXT, objection, remark
from wire.settings import MemorySettings

from runner.config.models import Config
from runner.config.users import check_servers
from runner.doctor.finding import Finding, ok, problem, refused, warning
from runner.tiers.base import Tier
from runner.tiers.drivers import tier_of
from runner.workspace.credentials import by_name, read_certificates, read_secrets

_SECRETS: Final = "memory secrets"
_SERVER: Final = "memory server"
_TIMEOUT_S: Final = 5.0
_ANSWER_MAX: Final = 1_000_000
_HERE: Final = ("localhost", "127.0.0.1", "::1")


def memory(config: Config, user_id: str, environ: Mapping[str, str]) -> list[Finding]:
    """Whether the secrets are where the configuration says, and whether the server answers this
    host and is fit for this user's memory."""
    settings = config.for_user(user_id)
    try:
        secrets = read_secrets(settings, environ)
        trusted = read_certificates(settings.memory.ca_file)
        check_servers(config, user_id)
    except WireError as error:
        return [refused(_SECRETS, error)]
    named = [name for name, secret in by_name(secrets).items() if secret and "memory" in name]
    findings = [ok(_SECRETS, f"{' and '.join(named) or 'none'} configured")]
    if url := settings.memory.server_of(user_id):
        tier = None if handed(url, settings.egress.host_loopback) else tier_of(config)
        findings += _server(url, trusted, settings.memory, secrets.memory_token, tier)
    return findings


def _server(
    url: str, ca_pem: str, memory: MemorySettings, token: str, tier: Tier | None
) -> list[Finding]:
    host = urlsplit(url).hostname or ""
    one_user = memory.server_holds_one_user
    elsewhere = tier.memory_server(url, host) if tier is not None else None
    findings = [elsewhere or _answers(url, ca_pem, token, one_user=one_user)]
    if url.startswith("http:") and host not in _HERE:
        findings.append(
            warning(
                _SERVER,
                f"the memory and its token travel unencrypted to {host}",
                "use https:// or libsql://, unless that network is yours alone",
            )
        )
    return findings


def _answers(url: str, ca_pem: str, token: str, *, one_user: bool) -> Finding:
    context = ssl.create_default_context(cadata=ca_pem or None)
    if ca_pem:
        context.load_default_certs()
    asked = [{"type": "execute", "stmt": {"sql": question}} for question in (FULL_TEXT, ABILITIES)]
    request = urllib.request.Request(  # noqa: S310
        f"{url.rstrip('/')}/v2/pipeline",
        json.dumps({"requests": [*asked, {"type": "close"}]}).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=context) as answer:  # noqa: S310
            full_text, abilities = map(_texts, json.loads(answer.read(_ANSWER_MAX))["results"][:2])
    except urllib.error.HTTPError as error:
        what = f"{url} answers, and does not say what its SQL can do (HTTP {error.code})"
        return warning(_SERVER, what, "correct memory.remote_url or memory.auth_token_env")
    except ssl.SSLError as error:
        return _unreachable(url, str(error), certificate=True)
    except OSError as error:
        reason = getattr(error, "reason", error)
        return _unreachable(url, str(reason), certificate=isinstance(reason, ssl.SSLError))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, HTTPException):
        return problem(_SERVER, f"{url} is not a memory server", "correct memory.remote_url")
    if refusal := objection(url, full_text, abilities, one_user=one_user):
        return refused(_SERVER, refusal)
    if said := remark(url, abilities):
        return warning(_SERVER, said, "ask Turso whose files those are")
    return ok(_SERVER, f"{url} answers")


def _texts(result: Any) -> list[str] | None:
    """The first column of one statement's rows; None if the server could not do it."""
    if result["type"] != "ok":
        return None
    return [str(row[0].get("value")) for row in result["response"]["result"]["rows"]]


def _unreachable(url: str, why: str, *, certificate: bool) -> Finding:
    fix = (
        "name the certificate that signed it in memory.ca_file"
        if certificate
        else f"start it or correct memory.remote_url; try: curl -v {url}"
    )
    return problem(_SERVER, f"{url} cannot be reached ({why})", fix)
