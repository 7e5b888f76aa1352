#!/usr/bin/env bash
# Install the Python programs of tests/clients that others wrote in .venv/clients, at the exact
# versions of tests/support/python/requirements.txt. Does nothing where they are there.
set -euo pipefail
cd "$(dirname "$0")/.."

wanted=tests/support/python/requirements.txt
stamp=.venv/clients/.ready
cmp -s "$wanted" "$stamp" && exit 0
[ -x .venv/clients/bin/python ] || .venv/bin/python -m venv .venv/clients
.venv/clients/bin/python -m pip --quiet --disable-pip-version-check install --no-deps -r "$wanted"
cp "$wanted" "$stamp"
