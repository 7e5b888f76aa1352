"""The images as they are built: who runs in them, what is in them and what is not, and
that their programs start where nothing can be written and nothing reached."""

import json
import os
import re
import subprocess
from importlib.metadata import version

import pytest

pytestmark = pytest.mark.docker

IMAGES = os.environ.get("TESTS_IMAGES", "oxydra")
PROGRAMS = {
    "agent": "oxydra-guest",
    "shell": "oxydra-shell-daemon",
    "embedder": "oxydra-embedder",
}
CONFINED = (
    *("--read-only", "--network", "none", "--cap-drop", "ALL"),
    *("--security-opt", "no-new-privileges", "--user", "10001:10001"),
)


def name(role: str) -> str:
    return f"{IMAGES}-{role}:{version('oxydra')}"


def run(role: str, *command: str, options: tuple[str, ...] = CONFINED) -> str:
    done = subprocess.run(
        ["docker", "run", "--rm", *options, name(role), *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("role", PROGRAMS)
def test_an_image_says_what_it_is_and_holds_no_setting_of_its_maker(role: str) -> None:
    done = subprocess.run(
        ["docker", "inspect", name(role)], capture_output=True, text=True, check=True
    )
    config = json.loads(done.stdout)[0]["Config"]
    assert config["User"] == "10001:10001"
    assert config["Cmd"] == [PROGRAMS[role], "--help"]
    assert config["Labels"]["oxydra.role"] == role
    assert config["Labels"]["org.opencontainers.image.version"] == version("oxydra")
    assert not config["Entrypoint"]
    assert not config["Volumes"]
    assert not config.get("ExposedPorts")
    assert {entry.partition("=")[0] for entry in config["Env"]} <= {
        *("PATH", "LANG", "PYTHONUTF8", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"),
        *("HF_HUB_OFFLINE", "PYTHON_VERSION", "PYTHON_SHA256", "GPG_KEY"),
    }


@pytest.mark.parametrize(("role", "program"), PROGRAMS.items())
def test_its_program_starts_as_a_user_who_may_nothing(role: str, program: str) -> None:
    assert run(role).startswith(f"usage: {program}")


@pytest.mark.parametrize("role", PROGRAMS)
def test_nothing_in_it_raises_rights_or_remembers_how_it_was_built(role: str) -> None:
    script = (
        "find / -xdev -type f -perm /6000; ls -d /wheels /pip /root/.cache /opt/oxydra/bin/pip*"
        " /.oxydra /vault /ipc; find /opt/oxydra -writable ! -type l; getent passwd 10001"
    )
    out = run(role, "sh", "-c", f"({script}) 2>/dev/null")
    [user] = out.splitlines()
    assert user.startswith("oxydra:x:10001:10001:")


@pytest.mark.parametrize("role", PROGRAMS)
def test_its_own_code_is_compiled_already(role: str) -> None:
    program = (
        "import importlib.util as u, pathlib, json, asyncio, wire.logs as own;"
        "print([m.__name__ for m in (json, asyncio, own)"
        " if not pathlib.Path(u.cache_from_source(m.__file__)).is_file()])"
    )
    assert run(role, "/opt/oxydra/bin/python", "-P", "-c", program) == "[]\n"


def test_the_agent_can_reach_every_provider_and_has_no_torch() -> None:
    program = (
        "import importlib.util as u;"
        "print([n for n in ('openai', 'anthropic', 'google.genai', 'libsql', 'numpy')"
        " if not u.find_spec(n)],"
        "[n for n in ('torch', 'transformers', 'sentence_transformers', 'docker')"
        " if u.find_spec(n)])"
    )
    assert run("agent", "/opt/oxydra/bin/python", "-c", program) == "[] []\n"
    assert run("agent", "sh", "-c", "find / -xdev -iname '*torch*' 2>/dev/null || true") == ""


def test_the_shell_has_what_people_expect_in_one() -> None:
    tools = (
        "bash sh ls cat grep sed awk find xargs sort git curl jq rg python python3 less ps top "
        "tar gzip bzip2 xz zip unzip diff patch file tree"
    )
    script = f"for tool in {tools}; do command -v $tool >/dev/null || echo $tool; done"
    assert run("shell", "bash", "-c", script) == ""
    assert "ca-certificates.crt" in run("shell", "ls", "/etc/ssl/certs/ca-certificates.crt")


def test_commands_get_the_bases_python_and_not_the_daemons_packages() -> None:
    program = "import importlib.util as u; print([n for n in ('grpc', 'wire') if u.find_spec(n)])"
    for python in ("python", "python3"):
        assert run("shell", python, "-c", program) == "[]\n"
    probe = "import importlib.util as u; print(u.find_spec('shell_daemon.probe') is not None)"
    assert run("shell", "/opt/oxydra/bin/python", "-P", "-c", probe) == "True\n"


def test_the_shell_image_holds_no_agent_packages() -> None:
    program = (
        "import importlib.util as u;"
        "print([n for n in ('pydantic_ai', 'libsql', 'openai', 'docker') if u.find_spec(n)])"
    )
    assert run("shell", "/opt/oxydra/bin/python", "-c", program) == "[]\n"


def test_the_embedder_computes_a_vector_without_a_network() -> None:
    program = (
        "from guest.embedding.loading import load;"
        "model = load('sentence-transformers', 'all-MiniLM-L6-v2');"
        "print(model.model_id, model.encode(['a text']).shape)"
    )
    out = run(
        *("embedder", "/opt/oxydra/bin/python", "-c", program),
        options=(*CONFINED, "--tmpfs", "/tmp"),
    )
    assert out == "sentence-transformers/all-MiniLM-L6-v2 (1, 384)\n"
    program = program.replace("all-MiniLM-L6-v2", "multilingual").replace("a text", "ein Schlüssel")
    out = run(
        *("embedder", "/opt/oxydra/bin/python", "-c", program),
        options=(*CONFINED, "--tmpfs", "/tmp"),
    )
    assert re.fullmatch(r"multilingual-[0-9a-f]{8} \(1, 384\)\n", out)
