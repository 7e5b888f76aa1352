"""Logging in at an MCP server by OAuth, with the SDK's client, which does discovery, registration
and PKCE, and checks `iss`, the issuer and the resource. Checked here is what it does not: where
requests and the person are sent, how long answers are, and that the server has PKCE."""

import asyncio
import logging
import secrets
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import parse_qsl

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.utils import is_valid_client_metadata_url, issuers_match
from mcp.shared import auth as oauth
from mcp_types import LATEST_PROTOCOL_VERSION
from pydantic import AnyUrl
from wire.egress import hosts
from wire.egress.loopback import LASTS_S, is_loopback
from wire.errors import Code
from wire.settings import EgressSettings, McpServerSettings
from wire.text import shortened, visible_name
from wire.v1.egress_pb2 import EgressLogin

from runner.egress.configuration import proxy_authorization, public_addresses
from runner.errors import ConfigError
from runner.workspace.credentials import read_certificates
from runner.workspace.keys import read_variable

ANSWER_MAX_BYTES: Final = 256 * 1024
_ANSWER_S: Final = 30.0
_PERSON_S: Final = 600.0
_SAID_MAX_CHARS: Final = 400
_PING: Final = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
_HEADERS: Final = {"MCP-Protocol-Version": LATEST_PROTOCOL_VERSION}
_CALLBACK: Final = "/callback"
_ARRIVED: Final = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nThe answer has arrived.\n"


@dataclass(eq=False)
class Login(httpx2.AsyncBaseTransport):
    """One login at the server `name`, and the transport of the SDK's requests for it. `tell` hears
    what the person is to open in a browser, and `back` with what that comes back."""

    name: str
    server: McpServerSettings
    egress: EgressSettings
    environ: Mapping[str, str]
    tell: Callable[[str], None]
    back: asyncio.Queue[dict[str, str]] = field(default_factory=asyncio.Queue, init=False)
    _state: str | None = field(default=None, init=False)

    async def run_here(self) -> EgressLogin:
        """The same as `run`, where the browser comes back to a port of this machine."""
        back = await asyncio.start_server(self._serve, "127.0.0.1")
        try:
            return await self.run(f"http://127.0.0.1:{back.sockets[0].getsockname()[1]}{_CALLBACK}")
        finally:
            back.close()

    async def run(self, redirect: str) -> EgressLogin:
        """Let the person log in. The browser comes back to `redirect`, and `answered` hears with
        what. Raises `ConfigError` with what is wrong."""
        logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL + 1)  # what it raises, too
        context = ssl.create_default_context()
        if pem := read_certificates(self.egress.ca_file, "egress.ca_file"):
            context.load_verify_locations(cadata=pem)
        word = proxy_authorization(self.egress, self.environ)
        header = {"Proxy-Authorization": word} if word else None
        proxy = httpx2.Proxy(self.egress.proxy, headers=header) if self.egress.proxy else None
        self._inner = httpx2.AsyncHTTPTransport(verify=context, proxy=proxy, trust_env=False)
        self._url = httpx2.URL(self.server.url)
        self._redirect = redirect
        try:
            sdk = self._client(redirect)
            async with httpx2.AsyncClient(transport=self, auth=sdk, timeout=_ANSWER_S) as http:
                answer = await http.post(self._url, json=_PING, headers=_HEADERS)
            return self._found(answer.status_code)
        except (OAuthFlowError, httpx2.HTTPError, OSError, ValueError) as error:
            said = (str(error) or "no answer in time").splitlines()[0]  # no value of an answer
            raise ConfigError(
                Code.FAILED_PRECONDITION,
                f"the login at the MCP server {self.name} has failed",
                details=shortened(visible_name(said), _SAID_MAX_CHARS),
                resolution="log in again, once that is mended",
            ) from None

    def _client(self, redirect: str) -> OAuthClientProvider:
        known, given = None, self.server.client_id
        document = given if is_valid_client_metadata_url(given) else None
        if given and not document:
            named = self.server.client_secret_env
            secret = read_variable(named, self.environ, "client_secret_env names it") or None
            how: Any = {"token_endpoint_auth_method": "client_secret_basic" if secret else "none"}
            known = oauth.OAuthClientInformationFull(client_id=given, client_secret=secret, **how)

        async def get(value: Any, *_: object) -> Any:
            return value

        storage: Any = SimpleNamespace(set_client_info=get, set_tokens=get)
        storage.get_client_info, storage.get_tokens = partial(get, known), partial(get, None)
        public: Any = {"client_name": "Oxydra", "token_endpoint_auth_method": "none"}
        public |= {"application_type": "web" if redirect.startswith("https:") else "native"}
        wanted = oauth.OAuthClientMetadata(redirect_uris=[AnyUrl(redirect)], **public)
        steps = (self._visit, self._returned, document)
        sdk = OAuthClientProvider(self.server.url, wanted, storage, *steps)
        self._known = sdk.context
        return sdk

    def _found(self, status: int) -> EgressLogin:
        tokens, client = self._known.current_tokens, self._known.client_info
        if tokens is None or client is None:
            raise OAuthFlowError(f"it asks for no login: it answers with {status}")
        if status == 401:
            raise OAuthFlowError("it refuses the token that its authorization server gave")
        lasts = tokens.expires_in or (LASTS_S if tokens.refresh_token else 0)
        return EgressLogin(
            id=secrets.token_urlsafe(16),
            url=self.server.url,
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token or "",
            expires_at=int(time.time()) + lasts if lasts else 0,
            token_url=str(self._metadata().token_endpoint),
            resource=self._known.get_resource_url(),
            client_id=client.client_id,
            client_secret=client.client_secret or "",
            auth_method=client.token_endpoint_auth_method or "",
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_ANSWER_S):
                head = await reader.readuntil(b"\r\n\r\n")
            target = head.decode("latin-1").partition(" ")[2].partition(" ")[0]
            path, _, query = target.partition("?")
            if path == _CALLBACK and self.answered(query):
                writer.write(_ARRIVED)
        writer.close()

    def answered(self, query: str) -> bool:
        """Hear with what the browser came back. Returns whether it is the first with this state."""
        with suppress(ValueError):
            said = parse_qsl(query, max_num_fields=32)
            if ("state", self._state) in said:
                self._state = None
                self.back.put_nowait(dict(said))
                return True
        return False

    async def _visit(self, url: str) -> None:
        self._metadata()
        await self._address(httpx2.URL(url))
        self._state = httpx2.URL(url).params["state"]
        self.tell(str(httpx2.URL(url)))

    async def _returned(self) -> oauth.AuthorizationCodeResult:
        async with asyncio.timeout(_PERSON_S):
            said = await self.back.get()
        if error := said.get("error"):
            raise OAuthFlowError(f"it was refused: {error} {said.get('error_description', '')}")
        return oauth.AuthorizationCodeResult.model_validate({"code": "", **said})

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url, body = request.url, bytearray()
        if request.method == "POST" and url != self._url:
            self._metadata()
        async with asyncio.timeout(_ANSWER_S):
            sent = httpx2.Request(
                request.method,
                url.copy_with(host=await self._address(url)),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": url.host},
            )
            received = await self._inner.handle_async_request(sent)
            stream: Any = received.stream
            if url != self._url:
                async for piece in stream:
                    body += piece
                    if len(body) > ANSWER_MAX_BYTES or "content-encoding" in received.headers:
                        raise OAuthFlowError("an answer is too long, or compressed")
            await received.aclose()
        return httpx2.Response(received.status_code, headers=received.headers, content=bytes(body))

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _metadata(self) -> oauth.OAuthMetadata:
        """What its authorization server says of itself, without which nothing is posted."""
        if (metadata := self._known.oauth_metadata) is None:
            raise OAuthFlowError("no authorization server of it says how to log in (RFC 8414)")
        if "S256" not in (metadata.code_challenge_methods_supported or ()):
            raise OAuthFlowError("its authorization server does not check S256 (PKCE)")
        if self.server.issuer and not issuers_match(f"{metadata.issuer}", self.server.issuer):
            raise OAuthFlowError(f"its authorization server {metadata.issuer} is not its issuer")
        if metadata.registration_endpoint is None and self._known.client_info is None:
            raise OAuthFlowError(
                "its authorization server registers no clients by itself: register one there, for "
                f"{self._redirect} (any port, if it is 127.0.0.1), and set client_id of the server "
                "in runner.toml"
            )
        return metadata

    async def _address(self, url: httpx2.URL) -> str:
        """The address to connect to, as it was checked; the name for the server's own host, and
        where a proxy looks it up."""
        host, here = url.host, is_loopback(url.host)
        if url.userinfo or url.scheme not in ("https", "http" if here else "https"):
            raise OAuthFlowError(f"{url.copy_with(query=None)} does not protect a login")
        if host == self._url.host or (here and is_loopback(self._url.host)):
            return host
        if self.egress.proxy and not here and not hosts.is_address(hosts.canonical(host)):
            return host
        return (await public_addresses(host, hosts.networks(self.egress.private_networks)))[0]
