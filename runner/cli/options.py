"""The options before the command, and the settings that follow from them."""

import itertools
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from wire.errors import Code

from runner.config.user_id import DEFAULT_USER_ID, check_user_id
from runner.errors import ConfigError

if TYPE_CHECKING:
    from runner.config.loading import LoadedSettings
    from runner.config.models import Config

UNCONFINED: Final = (
    "process tier: commands see only the shared files, and the network as [egress.shell] says; the "
    "agent has no network, but runs with your rights, without a container. To look at that:\n"
    "  runner doctor --boundary"
)

VALUED: Final = ("--connect", "--config", "--user", "--tier", "--workspace-root", "--log-level")
_FLAGS: Final = ("--insecure",)
_WHOSE: Final = ("--connect", "--user")
_SETTINGS: Final = ("--config", "--workspace-root")
_TIER: Final = ("--tier", "--insecure")
WITHOUT_SETTINGS: Final = frozenset({"completion", "upgrade"})
FOR_THE_MACHINE: Final = frozenset({*WITHOUT_SETTINGS, "images", "init", "users"})
"""Commands that are not about one user's agent, as all others are."""
_SAME_IN_CHAT: Final = re.compile(r"`?\brunner (sessions|usage|status)\b(?: list)?(?: --all)?`?")
HOSTING: Final = frozenset({"acp", "ask", "chat", "doctor", "mcp", "serve", "start"})
"""Commands that start guests, or examine what a start needs."""

AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]
With = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="DIR[:ro]",
        help="Let the agent work in this directory of yours, or only read it.",
    ),
]
Hide = Annotated[
    list[str] | None, typer.Option("--hide", metavar="PATH", help="A file in it that nobody reads.")
]
Lift = Annotated[
    list[str] | None,
    typer.Option(
        "--lift", metavar="PATH", help='What may be written in it, too: ".git" for commits.'
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def options_first(words: Sequence[str]) -> list[str]:
    """The command line with the global options moved to the front."""
    front: list[str] = []
    rest: list[str] = []
    left = iter(words)
    for word in left:
        name, equals, _ = word.partition("=")
        if word == "--":
            rest += [word, *left]
        elif word in _FLAGS or (name in VALUED and equals):
            front.append(word)
        elif word == "--with-folder":
            rest.append("--with-folder=rw")
        elif word in VALUED and (value := next(left, None)) is not None:
            front += [word, value]
        else:
            rest.append(word)
    return [*front, *rest]


def called() -> str:
    """The name that this program was called by: `runner` or `oxydra`."""
    return "oxydra" if Path(sys.argv[0]).name == "oxydra" else "runner"


def program() -> str:
    """What starts this program in the shell that it was started from: its name, `runner` or
    `oxydra`, where the shell finds it by that, else its path."""
    given, name = Path(sys.argv[0]), called()
    found = shutil.which(name)
    if given.name != name or not given.exists() or (found and given.samefile(found)):
        return name
    here = Path(os.environ.get("PWD", Path.cwd()))
    whole = given.absolute()
    return shlex.quote(str(whole.relative_to(here) if whole.is_relative_to(here) else whole))


def for_the_same(text: str, words: Sequence[str]) -> str:
    """`text`, whose commands get what starts this program, and the options of `words` they need.

    `words` has its options in front. Without the user `runner stop` could stop another's agent.
    """
    given: list[tuple[str, list[str]]] = []
    left = iter(words)
    for word in left:
        name, equals, _ = word.partition("=")
        if name not in VALUED and name not in _FLAGS:
            break
        value = [] if equals or name in _FLAGS else [next(left, "")]
        given.append((name, [word, *value]))

    def completed(call: re.Match[str]) -> str:
        needed: tuple[str, ...] = () if call[1] in WITHOUT_SETTINGS else _SETTINGS
        needed += () if call[1] in {*FOR_THE_MACHINE, "--"} else _WHOSE
        needed += _TIER if call[1] in HOSTING else ()
        there = text[call.end() :] if call[1] == "--" else ""
        kept = (said for name, said in given if name in needed and name not in there)
        options = [shlex.quote(word) for said in kept for word in said]
        return " ".join([program(), *options, ""])

    return _calls().sub(completed, text)


def command_names() -> frozenset[str]:
    """Every command of this program, and every group of commands."""
    program = import_module("runner.cli.app")  # by its name: it is made of what is below it
    return frozenset(typer.main.get_group(program.app).commands)


def _calls() -> re.Pattern[str]:
    """Matches `runner ` before a command or an option, which is its group."""
    names = (rf"{name}\b" for name in sorted(command_names()))
    return re.compile(rf"(?<![\w./-])runner (?=(--|{'|'.join(names)}))")


@dataclass(frozen=True)
class Options:
    """The global options of one command line."""

    config_file: Path | None = None
    user_id: str = DEFAULT_USER_ID
    tier: str | None = None
    insecure: bool = False
    workspace_root: str | None = None
    log_level: str | None = None
    connect: Path | None = None

    @property
    def asked_tier(self) -> str | None:
        """The tier that the command line names, if any."""
        return "process" if self.insecure else self.tier

    def load(self) -> "Config":
        """The settings for a command that inspects or stops a host, in any tier.

        Raises `ConfigError` where an access file leads to another account's host.
        """
        return self.load_settings().config

    def load_settings(self, draft: str | None = None) -> "LoadedSettings":
        """The same with where each comes from; as if `config_file` held the `draft`, if given."""
        if self.connect is not None:
            raise ConfigError(
                Code.FAILED_PRECONDITION,
                "this needs the account that runs the agent",
                details="through an access token there are chat, ask, sessions, memory and usage, "
                "without what concerns files of that host",
                resolution="ask the person who runs it, or leave out --connect for an agent of "
                "your own",
            )
        from runner.cli.output import show_times_in
        from runner.config.loading import load_settings

        check_user_id(self.user_id)
        given = {
            "--tier": self.asked_tier,
            "--workspace-root": self.workspace_root,
            "--log-level": self.log_level,
        }
        overrides = {option: value for option, value in given.items() if value is not None}
        loaded = load_settings(self.config_file, overrides=overrides, draft=draft)
        show_times_in(loaded.config.for_user(self.user_id).agent.time_zone)
        return loaded

    def nothing_is_chosen(self) -> bool:
        """Whether no setting says which model answers, and a person can be asked."""
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            return False
        return self.load_settings().origin(("agent", "provider"), self.user_id) is None

    def load_for_hosting(self) -> "Config":
        """The settings for a command that runs guests.

        Raises `ConfigError` for a tier that was not asked for by name or does not exist, and
        `TierError` if packages are missing that it needs here.
        """
        from runner.tiers.drivers import driver_for, tier_of
        from runner.tiers.process.packages import check_packages

        config = self.load()
        if tier_of(config).insecure and not self.insecure:
            raise ConfigError(
                Code.FAILED_PRECONDITION,
                f"the {config.tier} tier must be asked for with --insecure",
                details="no container is around the agent itself there: it has no network, but "
                "runs with your rights and can reach every file that you can",
                resolution=self.command("start", insecure=True),
            )
        driver_for(config)
        if not tier_of(config).images:
            check_packages(config.for_user(self.user_id))
        return config

    def command(self, *words: str, insecure: bool = False) -> str:
        """The command line that runs `words` for the same user and settings."""
        return f"{program()} {shlex.join([*self._words(insecure=insecure), *words])}"

    def child(self, *words: str) -> list[str]:
        """The command line that runs this program again, in another process."""
        return [sys.executable, "-P", "-m", "runner.cli", *self._all_words(), *words]

    def mended(self, fix: str) -> str:
        """`fix`, with its commands for the same user and settings."""
        return for_the_same(fix, self._all_words())

    def mended_in_chat(self, fix: str) -> str:
        """The same in a chat, whose own commands take the place of those that do the same."""
        return self.mended(_SAME_IN_CHAT.sub(r"/\1", fix))

    def _all_words(self) -> list[str]:
        tier = [] if self.tier is None else ["--tier", self.tier]
        return [*tier, *self._words(insecure=self.insecure)]

    def _words(self, *, insecure: bool) -> list[str]:
        given = {
            "--connect": self.connect,
            "--config": self.config_file,
            "--user": None if self.user_id == DEFAULT_USER_ID else self.user_id,
            "--workspace-root": self.workspace_root,
            "--log-level": self.log_level,
        }
        named = ((option, str(value)) for option, value in given.items() if value is not None)
        return [*(["--insecure"] if insecure else []), *itertools.chain.from_iterable(named)]


def warn_unconfined(config: "Config", options: Options) -> None:
    """Say what the process tier confines and what not, unless it was the tier used last."""
    from runner.tiers.drivers import tier_of

    if tier_of(config).insecure:
        from runner.host.runtime import LastStart, Runtime

        last = LastStart.load(Runtime.locate(config, options.user_id))
        if last is None or last.tier != config.tier:
            from runner.cli.output import say

            say(options.mended(UNCONFINED))
