"""How well a model does as the agent: `make try-model BASE_URL=… MODEL=…`.

Twenty-four first actions (8 messages that need no tool, 8 for memory, 8 for files and the shell)
and a chat of five go through the runner as a person would run it: an installation of its own, the
process tier, `runner ask`. What was done is read from the turns' events, the memory and the files.
Needs nothing but the runner, so it can try an older one, too: `--runner PATH`. Settings can be
given as environment variables, such as `OXYDRA_AGENT__TURN_TIMEOUT_S=1800`.
"""

import argparse
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any, Final

_NOTES: Final = (
    "The user's passport expires in August 2031.",
    "The spare key to the cellar hangs behind the blue door.",
    "The dentist's appointment is on Tuesday at ten.",
    "The user's old phone was a Nokia with a cracked screen.",
    "The gym membership runs until the end of May.",
)
_FILES: Final = {
    "todo.txt": "call the plumber\nbuy stamps\nreturn the library books\n",
    "soup.txt": "leeks, potatoes, cream\n",
    "paella.txt": "rice, mussels, saffron, peas\n",
    "settings.ini": "[looks]\ncolour = red\nfont = large\n",
    "visits.log": "mon 4\ntue 9\nwed 2\nthu 7\nfri 5\n",
}


@dataclass(frozen=True)
class Message:
    """What is said, and which tools are right as the first action; none: it needs no tool.

    Also right without a tool is an answer with the word `or_answer`, where a note with that word is
    given to the model beside the message.
    """

    text: str
    tools: tuple[str, ...] = ()
    or_answer: str = ""


_SHELL: Final = ("shell_exec",)
_SEARCH: Final = ("memory_search", "search_memory", "recall", "memory_context")
_FIRST: Final[Mapping[str, tuple[Message, ...]]] = {
    "no-tool": (
        Message("Hi there, good morning!"),
        Message("Thanks a lot, that helped me."),
        Message("What is 17 plus 26?"),
        Message("How do you say 'good night' in French?"),
        Message("Which planet is nearest to the sun?"),
        Message("Write a birthday greeting of two lines for a colleague."),
        Message("Explain in one sentence what a thermometer does."),
        Message("Give me another word for 'quick'."),
    ),
    "memory": (
        Message("Please remember that I am allergic to walnuts.", ("memory_save", "remember")),
        Message("Note for later: our landlord is called Mr Okafor.", ("memory_save", "remember")),
        Message(
            "From now on keep in mind that I drink my coffee without sugar.",
            ("memory_save", "remember"),
        ),
        Message("Do you still know when my passport expires?", _SEARCH, "2031"),
        Message("Where did I say the spare key to the cellar is?", _SEARCH, "blue"),
        Message(
            "My dentist has moved the appointment from Tuesday to Friday. Correct that, please.",
            ("memory_update", *_SEARCH),
        ),
        Message("Forget what you know about my old phone.", ("memory_delete", "forget", *_SEARCH)),
        Message(
            "The gym membership is over: delete your note about it.",
            ("memory_delete", "forget", *_SEARCH),
        ),
    ),
    "files-and-shell": (
        Message(
            "Create a file greeting.txt with the text: Good morning, team.",
            ("file_write", *_SHELL),
        ),
        Message(
            "Write my reading list into books.txt: Dune, Emma, Ulysses.", ("file_write", *_SHELL)
        ),
        Message("What does todo.txt say?", ("file_read", *_SHELL)),
        Message("Which files do I have?", ("file_list", *_SHELL)),
        Message("In which of my files does the word saffron appear?", ("file_search", *_SHELL)),
        Message(
            "Change the colour in settings.ini from red to green.",
            ("file_edit", "file_read", *_SHELL),
        ),
        Message("Run the command `echo ready | tr a-z A-Z` and show me the output.", _SHELL),
        Message("Count the lines of visits.log with a command in the shell.", _SHELL),
    ),
}

_CHAT: Final = (
    "Keep in mind that my sister Ilse lives in Tromsø.",
    "Please save this, too: our boiler was serviced on 3 March.",
    "Write my packing list into packing.txt: tent, stove, rope.",
    "Read packing.txt and tell me what is on the list.",
    "Run the command `wc -c /shared/packing.txt` and tell me what it prints.",
)
_GROUPS: Final = (*_FIRST, "chat")

_CALL_AS_TEXT: Final = re.compile(
    r'"(name|function|tool)"\s*:\s*\{?\s*"(name"\s*:\s*")?(memory|file|shell|scratch|write)_'
)


@dataclass
class Request:
    """One request to the server of the model, as the relay saw it; times by `time.monotonic`."""

    arrived: float
    status: int = 0
    first_byte: float = 0.0
    ended: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class Relay:
    """Passes requests on to the model's server, and counts.

    `temperature` replaces that of each request. `log` gets each request and its answer as a line of
    JSON.
    """

    def __init__(self, upstream: str, temperature: float | None, log: IO[str] | None) -> None:
        self.requests: list[Request] = []
        self._upstream = urllib.parse.urlsplit(upstream)
        self._temperature = temperature
        self._log = log
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.base_url = f"http://127.0.0.1:{self._http.server_address[1]}{self._upstream.path}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def connect(self) -> http.client.HTTPConnection:
        if self._upstream.scheme == "https":
            return http.client.HTTPSConnection(self._upstream.netloc)
        return http.client.HTTPConnection(self._upstream.netloc)

    def body(self, data: bytes) -> bytes:
        if self._temperature is None or not data:
            return data
        asked: dict[str, Any] = json.loads(data)
        if "messages" not in asked:
            return data
        asked["temperature"] = self._temperature
        asked["options"] = {**asked.get("options", {}), "temperature": self._temperature}
        return json.dumps(asked).encode()

    def note(self, request: Request, path: str, asked: bytes, answer: bytes) -> None:
        for name, pattern in (
            ("prompt_tokens", rb'"(?:prompt_tokens|prompt_eval_count)":\s*(\d+)'),
            ("cached_tokens", rb'"cached_tokens":\s*(\d+)'),
            ("output_tokens", rb'"(?:completion_tokens|eval_count)":\s*(\d+)'),
        ):
            if found := re.findall(pattern, answer):
                setattr(request, name, int(found[-1]))
        if self._log is not None:
            with contextlib.suppress(ValueError):
                line = {
                    "path": path,
                    "request": json.loads(asked),
                    "answer": answer.decode(errors="replace"),
                }
                print(json.dumps({**asdict(request), **line}), file=self._log, flush=True)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        relay = self

        class Handler(BaseHTTPRequestHandler):
            def _pass_on(self) -> None:
                data = relay.body(self.rfile.read(int(self.headers.get("content-length", "0"))))
                upstream = relay.connect()
                request = Request(time.monotonic())
                if b'"messages"' in data:
                    relay.requests.append(request)
                taken = bytearray()
                try:
                    headers = {
                        name: value
                        for name, value in self.headers.items()
                        if name.lower()
                        not in ("host", "content-length", "connection", "accept-encoding")
                    }
                    upstream.request(self.command, self.path, data or None, headers)
                    threading.Thread(
                        target=_end_together, args=(self.connection, upstream.sock), daemon=True
                    ).start()
                    response = upstream.getresponse()
                    request.status = response.status
                    self.send_response(response.status)
                    self.send_header(
                        "content-type", response.getheader("content-type", "application/json")
                    )
                    self.send_header("connection", "close")
                    self.end_headers()
                    while piece := response.read1(1 << 16):
                        request.first_byte = request.first_byte or time.monotonic()
                        taken += piece
                        self.wfile.write(piece)
                except (OSError, http.client.HTTPException, ValueError):
                    pass  # one of the two has hung up
                finally:
                    self.close_connection = True
                    upstream.close()
                    request.ended = time.monotonic()
                    relay.note(request, self.path, data, bytes(taken))

            do_GET = do_POST = _pass_on  # noqa: N815 - names of the base class

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def _end_together(client: socket.socket, upstream: socket.socket) -> None:
    """When the client hangs up, so does the relay: the model need not answer any more."""
    with contextlib.suppress(OSError):
        client.recv(1, socket.MSG_PEEK)
        upstream.shutdown(socket.SHUT_RDWR)


@dataclass
class Turn:
    """What happened on a message. Seconds count from the beginning of the turn."""

    session: str
    message: str
    group: str
    right: bool = False
    did: str = ""
    answer: str = ""
    tools: list[tuple[str, bool, str]] = field(default_factory=list)
    """Name, whether it succeeded, and arguments of each tool that ran."""
    receipts: list[tuple[str, str, str]] = field(default_factory=list)
    """Action, outcome and who asked for it."""
    failure: str = ""
    asked_after_s: float = 0.0
    """Until the first request reached the model's server: what the agent adds."""
    first_s: float = 0.0
    """Until the first word or tool."""
    whole_s: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    requests: int = 0


class Agent:
    """A runner with an installation of its own, below `root`."""

    def __init__(self, runner: Path, root: Path, relay: Relay, limit_s: float) -> None:
        self._command = [str(runner), "--config", str(root / "runner.toml"), "--insecure"]
        self._limit_s = limit_s
        self._relay = relay
        self.shared = root / "workspaces" / "default" / "shared"
        unwanted = ("XDG_", "OXYDRA_CONFIG", "PYTHONPATH", "VIRTUAL_ENV")
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith(unwanted)
        } | {"HOME": str(root)}

    def run(self, *arguments: str) -> str:
        """Run a command to its end. Raises `SystemExit` with its words if it fails."""
        ended = subprocess.run(
            [*self._command, *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode != 0:
            raise SystemExit(f"runner {' '.join(arguments)}:\n{ended.stdout}{ended.stderr}")
        return ended.stdout

    def notes(self) -> list[str]:
        """The text of every note that memory holds."""
        return [note["text"] for note in json.loads(self.run("memory", "list", "--json"))["notes"]]

    def ask(self, turn: Turn, ends: Callable[[dict[str, Any]], bool]) -> None:
        """Say the message and fill in what happened, until the turn is over or `ends` is true of an
        event; then it is interrupted."""
        before = len(self._relay.requests)
        asking = subprocess.Popen(
            [*self._command, "ask", "--json", "--session", turn.session, turn.message],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        late = threading.Timer(self._limit_s, asking.send_signal, (signal.SIGINT,))
        late.start()
        began, ended = time.monotonic(), False
        arguments = ""
        assert asking.stdout is not None
        assert asking.stderr is not None
        for line in asking.stdout:
            event, now = json.loads(line), time.monotonic()
            kind = event["event"]
            if kind == "started":
                began = now
            elif kind in ("text", "tool_started") and not turn.first_s:
                turn.first_s = now - began
            if ended:
                continue
            turn.whole_s = now - began
            if kind == "tool_started":
                arguments = event["arguments_json"]
            elif kind == "tool_finished":
                turn.tools.append((event["tool"], event["ok"], arguments))
            elif kind == "receipt":
                turn.receipts.append((event["action"], event["outcome"], event["asked_by"]))
            elif kind == "completed":
                turn.answer = event["text"]
            if ends(event):
                ended = True
                asking.send_signal(signal.SIGINT)
        asking.wait()
        late.cancel()
        said = asking.stderr.read().strip()
        if asking.returncode == 128 + signal.SIGINT and not ended:
            turn.failure = f"not done after {self._limit_s:.0f} s"
        elif asking.returncode != 0 and not ended:
            turn.failure = said or f"exit code {asking.returncode}"
        requests = self._relay.requests[before:]
        turn.requests = len(requests)
        if requests:
            turn.asked_after_s = requests[0].arrived - began
            counted = next((each for each in requests if each.prompt_tokens), requests[0])
            turn.prompt_tokens, turn.cached_tokens = counted.prompt_tokens, counted.cached_tokens


def _first_action(agent: Agent, group: str, number: int, message: Message) -> Turn:
    """The first tool that ran, or the answer without one."""
    turn = Turn(f"try-{group}-{number}", message.text, group)
    agent.ask(turn, lambda event: event["event"] == "tool_finished")
    as_text = bool(_CALL_AS_TEXT.search(turn.answer))
    if turn.tools:
        name, done, _ = turn.tools[0]
        turn.did = name if done else f"{name}, refused"
        turn.right = done and name in message.tools
    elif turn.failure:
        turn.did = "failed"
    elif as_text:
        turn.did = "a call as text"
    else:
        turn.did = "answered" if turn.answer.strip() else "an empty answer"
        needed = message.tools and not (message.or_answer and message.or_answer in turn.answer)
        turn.right = bool(turn.answer.strip()) and not needed
    return turn


def _chat(agent: Agent) -> Iterator[Turn]:
    """The five messages in one session, each to the end of its turn, judged by what it changed."""
    file = agent.shared / "packing.txt"

    def noted(*words: str) -> bool:
        return any(all(word in note for word in words) for note in agent.notes())

    def written() -> bool:
        text = file.read_text(errors="replace") if file.is_file() else ""
        return all(item in text.lower() for item in ("tent", "stove", "rope"))

    def ran(turn: Turn, tools: Sequence[str], word: str) -> bool:
        return any(done and name in tools and word in text for name, done, text in turn.tools)

    judges: tuple[Callable[[Turn], bool], ...] = (
        lambda _: noted("Ilse", "Troms"),
        lambda _: noted("boiler", "March"),
        lambda _: written(),
        lambda turn: ran(turn, ("file_read", "shell_exec"), "packing"),
        lambda turn: ran(turn, _SHELL, "wc"),
    )
    for message, judge in zip(_CHAT, judges, strict=True):
        turn = Turn("try-chat", message, "chat")
        agent.ask(turn, lambda _: False)
        turn.right = judge(turn)
        did = [name if done else f"{name}, refused" for name, done, _ in turn.tools]
        did += ["saved by the runtime" for _, done, by in turn.receipts if by == "runtime"]
        if turn.failure:
            did.append("failed")
        elif _CALL_AS_TEXT.search(turn.answer):
            did.append("a call as text")
        turn.did = "; ".join(did) or "answered"
        yield turn


def _row(turn: Turn) -> str:
    tokens = f"{turn.prompt_tokens:,}" if turn.prompt_tokens else "-"
    right = "yes" if turn.right else "NO"
    return (
        f"{turn.message[:50]:<50}  {right:<4}{turn.first_s:6.1f} s {turn.whole_s:6.1f} s"
        f" {tokens:>7}  {turn.did}"
    )


def _summary(turns: Sequence[Turn]) -> dict[str, Any]:
    """The figures of a run."""
    first = [turn for turn in turns if turn.group != "chat"]
    chat = [turn for turn in turns if turn.group == "chat"]
    prompts = [turn.prompt_tokens for turn in turns if turn.prompt_tokens]
    found: dict[str, Any] = {
        group: f"{sum(turn.right for turn in of)} of {len(of)}"
        for group in _GROUPS
        if (of := [turn for turn in turns if turn.group == group])
    }
    if first:
        found["first actions"] = f"{sum(turn.right for turn in first)} of {len(first)}"
    found["tokens of the first prompt"] = prompts[0] if prompts else "not counted"
    if chat:
        counted = [turn.prompt_tokens for turn in chat if turn.prompt_tokens]
        found["tokens of the last prompt"] = counted[-1] if counted else "not counted"
    if asked := [turn.asked_after_s for turn in turns if turn.requests]:
        found["added before the model is asked, ms"] = round(statistics.median(asked) * 1000)
    if words := [turn.first_s for turn in turns if turn.first_s]:
        found["first word or tool, median, s"] = round(statistics.median(words), 1)
    return found


def _is_ollama(base_url: str) -> bool:
    """Whether Ollama answers there. Raises `SystemExit` where nothing does."""
    try:
        with urllib.request.urlopen(
            urllib.parse.urljoin(base_url, "/api/version"), timeout=5
        ) as it:
            return "version" in json.load(it)
    except (urllib.error.HTTPError, ValueError):
        return False  # another server
    except OSError as error:
        raise SystemExit(f"no server answers at {base_url}: {error}. Start it first") from None


def main() -> None:
    parser = argparse.ArgumentParser(prog="make try-model", description=__doc__)
    parser.add_argument("--base-url", required=True, help="such as http://127.0.0.1:11434/v1")
    parser.add_argument("--model", required=True)
    parser.add_argument("--provider", help="ollama where it answers, else compatible")
    parser.add_argument("--key-env", help="the variable that holds the server's key")
    parser.add_argument("--temperature", type=float, help="instead of the product's own")
    parser.add_argument("--limit", type=float, default=1800, help="seconds for one message")
    parser.add_argument("--groups", nargs="+", choices=_GROUPS, default=_GROUPS)
    parser.add_argument("--json", type=Path, help="write all that was measured to this file")
    parser.add_argument("--log", type=Path, help="write requests and answers to this file")
    parser.add_argument("--runner", type=Path, default=Path(sys.executable).with_name("runner"))
    given = parser.parse_args()
    if not given.base_url or not given.model:
        parser.error("name the server and the model: make try-model BASE_URL=… MODEL=…")
    base_url = given.base_url if "://" in given.base_url else f"http://{given.base_url}"
    provider = given.provider or ("ollama" if _is_ollama(base_url) else "compatible")
    root = Path(tempfile.mkdtemp(dir="/tmp", prefix="try-"))
    log = given.log.open("w") if given.log else None
    relay = Relay(base_url, given.temperature, log)
    settings = {"provider": provider, "model": given.model, "base_url": relay.base_url}
    if given.key_env:
        settings["api_key_env"] = given.key_env
    (root / "runner.toml").write_text(
        f'tier = "process"\nworkspace_root = "{root}/workspaces"\n[agent]\n'
        + "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    )
    agent = Agent(given.runner, root, relay, given.limit)
    turns: list[Turn] = []
    version = agent.run("--version").strip()
    print(f"{given.model} at {base_url}, by {version}")
    if shutil.which("bwrap") is None:
        print("bubblewrap is not installed: there is no shell, and what needs it fails")
    try:
        agent.run("start", "--detach")
        for note in _NOTES:
            agent.run("memory", "save", note)
        for name, text in _FILES.items():
            (agent.shared / name).write_text(text)
        for group in given.groups:
            print(f"\n{group:<50}  right first     whole   prompt  did", flush=True)
            tried = (
                _chat(agent)
                if group == "chat"
                else (_first_action(agent, group, *each) for each in enumerate(_FIRST[group]))
            )
            for turn in tried:
                turns.append(turn)
                print(_row(turn), flush=True)
                if turn.failure:
                    print(f"    {turn.failure}")
    finally:
        agent.run("stop")
        relay.close()
        shutil.rmtree(root, ignore_errors=True)
    summary = _summary(turns)
    print("\n" + "\n".join(f"{name:<40}{value}" for name, value in summary.items()))
    if given.json:
        measured = {
            "model": given.model,
            "runner": version,
            "temperature": given.temperature,
            "machine": f"{os.cpu_count()} cores",
            "summary": summary,
            "turns": [asdict(turn) for turn in turns],
        }
        given.json.write_text(json.dumps(measured, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
