#!/usr/bin/env bash
# Test the lowest versions that pyproject.toml allows, in .venv-lowest.
#
# The embedder is left out: its lowest version is the one of constraints.txt, which all
# other tests run with.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}
EXTRAS=runner,guest,remote,openai,anthropic,google
venv=.venv-lowest
wanted=$(cat pyproject.toml constraints.txt tools/lowest.* | sha256sum | cut -d' ' -f1)

if [ "$(cat "$venv/.ready" 2>/dev/null || true)" != "$wanted" ]; then
  rm -rf "$venv"
  "$PYTHON" -m venv "$venv"
  pip() { "$venv/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
  "$venv/bin/python" tools/lowest.py ${EXTRAS//,/ } >"$venv/lowest.txt"
  grep -E '^(pytest|pytest-asyncio|pytest-timeout|hypothesis|opentelemetry-sdk)==' constraints.txt >"$venv/tests.txt"
  pip install --constraint "$venv/lowest.txt" --editable ".[$EXTRAS]" \
    --requirement "$venv/tests.txt"
  echo "$wanted" >"$venv/.ready"
fi

"$venv/bin/python" - <<'IMPORT'
import importlib, pkgutil
import guest, runner, shell_daemon, wire

LEFT_OUT = {"runner.testing", "guest.embedding.server"}  # other extras, programs of their own
for package in (wire, shell_daemon, guest, runner):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        name = module.name
        if name.endswith("__main__") or any(name.startswith(each) for each in LEFT_OUT):
            continue
        importlib.import_module(name)
IMPORT
"$venv/bin/python" -m pytest -q -p no:cacheprovider \
  tests/unit/wire tests/unit/runner/cli/test_app.py tests/unit/runner/cli/test_options.py \
  tests/unit/runner/cli/test_render.py tests/unit/runner/test_config.py \
  tests/unit/guest/agent/test_loop.py tests/unit/guest/agent/test_models.py \
  tests/unit/guest/tools/test_shell_tool.py tests/unit/guest/memory/test_memory_search.py

answer=$(mktemp -d)
trap 'rm -rf "$answer"' EXIT
printf '%s\n' 'remember that the spare key is under the blue pot' 'what do you know about the key' |
  "$venv/bin/runner" --insecure --workspace-root "$answer/users" chat >"$answer/said"
grep -q '^- .*blue pot' "$answer/said" || { cat "$answer/said" >&2; exit 1; }
