"""What is imported for an answer that needs none of it."""

import subprocess
import sys

import pytest

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
        "driver_for('process')\n"
        "assert 'docker' not in sys.modules"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True)
