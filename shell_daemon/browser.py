"""A browser as an MCP server: Chromium, Playwright's server that drives it, and a guard.

The guard holds every request that is not GET or HEAD, and refuses every WebSocket, until the person
has said yes to that site. Requests of all pages, frames and workers are intercepted in one place,
the browser's own target. WebSockets are not shown there; their proxy is this program. Downloads
arrive in the working directory.
"""

import argparse
import asyncio
import contextlib
import ctypes
import json
import os
import re
import shlex
import shutil
import socket
import ssl
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from wire.egress.forwarder import refusal_in
from wire.tools import SESSION_META

from shell_daemon.command_network import SYSTEM_BUNDLES

HELD_MAX: Final = 32
"""How many requests wait, and how many lines a result tells. The oldest request fails for room."""
_CHROMIUM: Final = "chromium-headless-shell"
_BUILD: Final = f"runner images build --role shell --with {_CHROMIUM}"
_SERVER: Final = ("npx", "-y", "-p", "@playwright/mcp@0.0.83", "-c")
_LINE_MAX: Final = 64 * 1024 * 1024
_PIECE: Final = 64 * 1024
_SHOWN_CHARS: Final = 200
_LEFT: Final = (OSError, ValueError, EOFError, asyncio.CancelledError)
_LISTENING: Final = b"DevTools listening on "
_PORTS: Final = {"http": 80, "https": 443}
_CERTIFICATE: Final = r"(?s)-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----"
_AUTHORITY: Final = (ctypes.c_uint * 3)(0x18, 0, 0)
"""A CERTCertTrust: an authority, of servers alone."""
_PREFIX: Final = "browser_"
"""Of Playwright's tools; ours has it from the server's name."""
_TOOLS: Final = {
    *("click", "close", "console_messages", "drag", "file_upload", "fill_form", "find", "hover"),
    *("handle_dialog", "navigate", "navigate_back", "network_requests", "press_key", "resize"),
    *("select_option", "snapshot", "tabs", "take_screenshot", "type", "wait_for"),
}
"""What is passed on: nothing that runs a program beside the guard, and no tools of pages."""
_START: Final = (
    f"exec {_CHROMIUM} --no-sandbox --disable-dev-shm-usage --disable-gpu "
    "--disable-quic --disable-background-networking --disable-component-update --disable-sync "
    "--disable-breakpad --password-store=basic --remote-debugging-pipe --remote-debugging-port=0 "
    "'--proxy-bypass-list=<-loopback>' --force-webrtc-ip-handling-policy=disable_non_proxied_udp "
    # What Chromium itself sends by POST, where nothing intercepts it.
    "--disable-features=Reporting,NetworkErrorLogging,FedCm,BackgroundFetch,AttributionReporting,"
    'PrivateAggregationApi,InterestGroupStorage,Fledge,FencedFrames,WebTransport "$@"'
)
_SERVER_FLAGS: Final = ("--snapshot-mode=none", "--codegen=none", "--no-webmcp")
_NO_WEBRTC: Final = "for (const n of ['', 'webkit']) delete self[n + 'RTCPeerConnection']"
_ALLOW: Final = {
    "name": "allow",
    "description": "Lets the pages of this conversation send to one site: forms, whatever else is "
    "not only read, and WebSockets. A person is asked. Requests that are held for it go out then; "
    "call it after a result has said that one is held.",
    "inputSchema": {
        "type": "object",
        "properties": {"url": {"type": "string", "description": "https://shop.example"}},
        "required": ["url"],
    },
}


def site_of(url: str) -> str:
    """The host and port that a URL is of; empty if it is of none, or looks like another's."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        if parts.hostname and "@" not in parts.netloc and parts.scheme in _PORTS:
            return f"{parts.hostname}:{parts.port or _PORTS[parts.scheme]}"
    return ""


@dataclass(eq=False)
class Guard:
    """What the person has allowed, and what waits for that. `send` gives Chromium a command."""

    send: Callable[[str, Mapping[str, Any]], None]
    allowed: set[str] = field(default_factory=set)
    held: dict[str, tuple[set[str], str]] = field(default_factory=dict)
    """For each request that waits the sites that it needs, and what is told of it."""
    _told: list[str] = field(default_factory=list)
    _session: str = ""

    def paused(self, event: Mapping[str, Any]) -> None:
        """Chromium asks about a request."""
        request, number = event["request"], event["requestId"]
        origin = request["headers"].get("Origin", request["url"])
        sites = {site_of(request["url"]), site_of(origin)}
        if request["method"] in ("GET", "HEAD") or sites <= self.allowed:
            return self.send("Fetch.continueRequest", {"requestId": number})
        what = f"{request['method']} {request['url'][:_SHOWN_CHARS]}"
        if sent := request.get("postData"):
            what += f" with {len(sent)} characters: {sent[:_SHOWN_CHARS]!r}"
        if len(sites) > 1:
            what += f" by a page of {origin}, which must be allowed too"
        if len(self.held) >= HELD_MAX:
            self._fail(next(iter(self.held)))
        self.held[number] = sites, what
        return self.tell(f"held, not sent: {what}")

    def allow(self, url: str) -> str:
        """The person has said yes. Returns what was done."""
        if not (site := site_of(url)):
            return "nothing is allowed: url is a site, as https://shop.example"
        self.allowed.add(site)
        gone = {number: what for number, (of, what) in self.held.items() if of <= self.allowed}
        for number in gone:
            del self.held[number]
            self.send("Fetch.continueRequest", {"requestId": number})
        done = [f"let go: {what}" for what in gone.values()] or ["nothing was held for it"]
        return "\n".join([f"pages of this conversation may send to {site}", *done])

    def of_session(self, session: str) -> None:
        """A call is made in `session`: what was allowed in another one counts no more."""
        if session != self._session:
            self._session = session
            self.allowed.clear()
            for number in [*self.held]:
                self._fail(number)

    def tell(self, what: str) -> None:
        """Have the next result say this."""
        if what not in self._told and len(self._told) < HELD_MAX:
            self._told.append(what)

    def news(self) -> str:
        """What the next result says; empty for nothing."""
        told = "\n".join(self._told)
        self._told.clear()
        return told

    def _fail(self, number: str) -> None:
        del self.held[number]
        self.send("Fetch.failRequest", {"requestId": number, "errorReason": "BlockedByClient"})


def _trust(store: Path) -> None:
    """Let Chromium trust the authorities that commands trust besides the system's. It looks for
    them in a `store` of NSS, a library of its own, which writes it here. Raises `OSError`."""
    bundle = Path(os.environ.get("SSL_CERT_FILE") or os.devnull).read_text()
    for system in filter(Path.is_file, map(Path, SYSTEM_BUNDLES)):
        bundle = bundle.removeprefix(system.read_text().rstrip())
    if not (found := re.findall(_CERTIFICATE, bundle)):
        return
    store.mkdir(parents=True)
    nss = ctypes.CDLL("libsmime3.so")  # loads the rest of NSS, too
    nss.PK11_GetInternalKeySlot.restype = nss.CERT_DecodeCertFromPackage.restype = ctypes.c_void_p
    failed = nss.NSS_InitReadWrite(f"sql:{store}".encode())
    slot = ctypes.c_void_p(nss.PK11_GetInternalKeySlot())
    failed = failed or nss.PK11_InitPin(slot, None, b"")
    for number, der in enumerate(map(ssl.PEM_cert_to_DER_cert, found)):
        made = ctypes.c_void_p(nss.CERT_DecodeCertFromPackage(der, len(der)))
        failed = failed or not made
        failed = failed or nss.PK11_ImportCert(slot, made, ctypes.c_ulong(0), b"%d" % number, 0)
        failed = failed or nss.CERT_ChangeCertTrust(None, made, _AUTHORITY)
    if failed:
        raise OSError("NSS does not take the authorities that Chromium is to trust")


async def _chromium(
    guard: Guard, profile: Path, home: Path, proxies: str
) -> tuple[asyncio.subprocess.Process, asyncio.StreamReader, str]:
    """Start Chromium, every request of which `guard` is asked about from the beginning. Returns
    it, what it says, and where Playwright's server connects."""
    ours, theirs = socket.socketpair()
    with theirs:
        number = theirs.fileno()
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", f"{_START} 3<&{number} 4>&{number}", "bash"),
            f"--proxy-server={proxies}",
            *(f"--user-data-dir={profile}", "about:blank"),
            env={**os.environ, "HOME": str(home)},
            pass_fds=(number,),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    events, commands = await asyncio.open_connection(sock=ours, limit=_LINE_MAX)
    guard.send = partial(_send, commands)
    arriving = {"behavior": "allow", "downloadPath": str(Path.cwd()), "eventsEnabled": True}
    guard.send("Browser.setDownloadBehavior", arriving)
    guard.send("Fetch.enable", {"patterns": [{"urlPattern": "*"}]})
    for _ in range(2):
        if b'"result"' not in (answer := await events.readuntil(b"\0")):
            raise OSError(f"Chromium does not ask about requests: {answer!r}")
    assert process.stderr
    said = b"-"
    while said and not said.startswith(_LISTENING):
        said = await process.stderr.readline()
    return process, events, said.removeprefix(_LISTENING).decode().strip()


def _send(commands: asyncio.StreamWriter, method: str, params: Mapping[str, Any]) -> None:
    command = {"id": 1, "method": method, "params": params}
    commands.write(json.dumps(command).encode() + b"\0")


async def _hear(events: asyncio.StreamReader, guard: Guard) -> None:
    """Hear what Chromium says until it ends."""
    with contextlib.suppress(OSError, EOFError):
        while True:
            match json.loads((await events.readuntil(b"\0"))[:-1]):
                case {"method": "Fetch.requestPaused", "params": event}:
                    guard.paused(event)
                case {"params": {"state": "completed", "filePath": file}}:
                    guard.tell(f"downloaded: {file}")


def _from_agent(guard: Guard, server: asyncio.StreamWriter, line: bytes) -> None:
    """Pass on what the agent says: it has shorter names for Playwright's tools, and one more."""
    said = json.loads(line)
    if said.get("method") == "tools/call":
        params = said["params"]
        guard.of_session(str((params.get("_meta") or {}).get(SESSION_META)))
        given, name = params.setdefault("arguments", {}), params["name"]
        if name not in _TOOLS:
            text = f"there is no tool {name}"
            if allows := name == _ALLOW["name"]:
                text = guard.allow(str(given.get("url")))
            result = {"content": [{"type": "text", "text": text}], "isError": not allows}
            return _say({"jsonrpc": "2.0", "id": said["id"], "result": result})
        if name == "take_screenshot":
            given["type"] = "jpeg"  # smaller than a message may be
        params["name"] = _PREFIX + name
    return server.write(json.dumps(said).encode() + b"\n")


def _from_server(guard: Guard, line: bytes) -> None:
    """Pass on what Playwright's server says; results say what the guard has done, too."""
    said = json.loads(line)
    result = said.get("result") or {}
    if "tools" in result:
        tools = {each["name"].removeprefix(_PREFIX): each for each in result["tools"]}
        known = [{**tools[name], "name": name} for name in sorted(_TOOLS & tools.keys())]
        result["tools"] = [*known, _ALLOW]
    elif "content" in result:
        for part in result["content"]:
            if "text" in part:  # the first line is what a person sees
                text = part["text"].removeprefix("### Result\n- ")
                part["text"] = text.replace("](./", f"]({Path.cwd()}/")
        if news := guard.news():
            result["content"].append({"type": "text", "text": news})
    _say(said)


def _say(message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


async def _each_line(reader: asyncio.StreamReader | None, take: Callable[[bytes], None]) -> None:
    while reader and (line := await reader.readline()):
        take(line)


async def _copy(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    while data := await source.read(_PIECE):
        to.write(data)
        await to.drain()
    to.close()


async def _tunnel(
    guard: Guard,
    proxy: str,
    held: bool,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Serve Chromium's request for a tunnel. One that is `held`, for a WebSocket, waits for a yes.
    Why egress refuses one is told, as Chromium tells nobody."""
    with contextlib.closing(writer), contextlib.suppress(*_LEFT):
        head = await reader.readuntil(b"\r\n\r\n")
        site = head.split(b" ", 2)[1].decode().lower()
        if not held or site in guard.allowed:
            there = urlsplit(proxy)
            up, down = await asyncio.open_connection(there.hostname, there.port or 80)
            with contextlib.closing(down):
                down.write(head)
                writer.write(first := await up.read(_PIECE))
                if why := refusal_in(first):
                    guard.tell(why)
                await asyncio.gather(_copy(reader, down), _copy(up, writer))
        else:
            guard.tell(f"refused: a WebSocket to {site}")
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()


def server_here(program: str, *flags: str) -> tuple[str, ...]:
    """The words that start Playwright's server in this directory, from one that no command sees:
    npx runs and obeys what lies where it starts."""
    here = str(Path.cwd())
    words = (program or "playwright-mcp", *_SERVER_FLAGS, f"--output-dir={here}", *flags)
    start = f"cd {shlex.quote(here)} && exec {shlex.join(words)}"
    return (*(("sh", "-c") if program else _SERVER), start)


async def _run(keep: str, server: str, proxy: str, scratch: Path) -> str:
    """Returns why it ended; empty if the agent has hung up."""
    profile = Path.home() / f".browser-{quote(keep, safe='')}" if keep else scratch / "profile"
    script = scratch / "before-each-page.js"
    script.write_text(_NO_WEBRTC)
    _trust(scratch / ".pki/nssdb")
    guard = Guard(lambda *_: None)
    ways = []
    for held in (False, True):
        serve = partial(_tunnel, guard, proxy, held)
        listener = await asyncio.start_server(serve, "127.0.0.1", 0)
        ways.append(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
    proxies = f"http={proxy};https={ways[0]};socks={ways[1]}"
    chromium, events, endpoint = await _chromium(guard, profile, scratch, proxies)
    driver = await asyncio.create_subprocess_exec(
        *server_here(server, f"--cdp-endpoint={endpoint}", f"--init-script={script}"),
        cwd=scratch,
        env={**os.environ, "TMPDIR": str(scratch)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE_MAX,
    )
    assert driver.stdin
    agent = asyncio.StreamReader(_LINE_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(agent), sys.stdin)
    work = (
        ("Chromium", _hear(events, guard)),
        ("Chromium", _each_line(chromium.stderr, lambda _: None)),
        ("Playwright's server", _each_line(driver.stdout, partial(_from_server, guard))),
        ("", _each_line(agent, partial(_from_agent, guard, driver.stdin))),
    )
    tasks = [asyncio.create_task(each, name=who) for who, each in work]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    driver.stdin.close()
    guard.send("Browser.close", {})
    await asyncio.gather(driver.wait(), chromium.wait())
    return f"{who} has ended" if (who := done.pop().get_name()) else ""


def main() -> None:
    """Serve MCP on the standard streams until the agent, Chromium or Playwright's server ends."""
    parser = argparse.ArgumentParser(prog="oxydra-browser")
    parser.add_argument("--keep", default="", help="keep cookies, by this name")
    parser.add_argument("--server", default="", help="Playwright's MCP server")
    options = parser.parse_args()
    if not (proxy := os.environ.get("HTTPS_PROXY", "")):
        sys.exit("the browser has no way out: name hosts in its server's egress.allow")
    if not shutil.which(_CHROMIUM):
        sys.exit(f"{_CHROMIUM} is not installed here. In containers: {_BUILD}; else from Debian")
    scratch = Path(tempfile.gettempdir(), "browser")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700)  # fails if a killed browser's cookies could not be removed
    why = asyncio.run(_run(options.keep, options.server, proxy, scratch))
    shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(why or None)


if __name__ == "__main__":
    main()
