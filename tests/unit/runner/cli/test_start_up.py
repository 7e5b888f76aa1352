"""The program's own first lines, and what is imported for an answer that needs none of it."""

import signal
import subprocess
import sys

import pytest
from wire.installation import adding

_SCRIPT = """
import sys
from runner.cli.app import main
sys.argv = ["runner", sys.argv[1]]
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
_HEAVY = {
    "docker",
    "grpc",
    "numpy",
    "openai",
    "anthropic",
    "prompt_toolkit",
    "runner.config.models",
}


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_neither_version_nor_help_imports_an_engine_a_provider_or_grpc(option: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _SCRIPT, option], capture_output=True, text=True, check=True
    )
    assert "oxydra" in done.stdout or "Usage" in done.stdout
    assert set(done.stderr.split()) & _HEAVY == set()


def test_the_process_tier_is_hosted_without_docker() -> None:
    code = (
        "import sys, runner.host.host\n"
        "from runner.tiers.drivers import driver_for\n"
        "from runner.config.models import Config\n"
        "driver_for(Config(), 'process')\n"
        "assert 'docker' not in sys.modules"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True)


def program(before: str = "") -> subprocess.CompletedProcess[str]:
    """`--version`, with `before` run first."""
    code = (
        "import signal, sys\n"
        f"{before}\n"
        "from runner.cli.__main__ import main\n"
        "sys.argv = ['runner', '--version']\n"
        "try: main()\n"
        "finally: print(signal.getsignal(signal.SIGINT).name)"
    )
    return subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False
    )


def test_without_the_packages_of_the_command_line_the_extra_is_named() -> None:
    done = program("sys.modules['typer'] = None")
    assert done.returncode == 1
    assert done.stderr == (
        f"the packages of the command line are not installed: typer\n  fix: {adding('runner')}\n"
    )


def test_a_program_that_was_told_to_ignore_ctrl_c_goes_on_to_ignore_it() -> None:
    """As `nohup` and background jobs are."""
    ignored = program("signal.signal(signal.SIGINT, signal.SIG_IGN)")
    assert ignored.stdout.splitlines() == ["oxydra 0.1.0", signal.SIG_IGN.name]
    assert program().stdout.splitlines() == ["oxydra 0.1.0", signal.SIG_DFL.name]
