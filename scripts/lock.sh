#!/usr/bin/env bash
# Writes requirements.lock and requirements-dev.lock anew from pyproject.toml, for every platform and Python at once.
#   scripts/lock.sh              keeps each version that still fits
#   scripts/lock.sh --upgrade    takes the newest versions that fit; other options of `uv pip compile` pass through too
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
uv=${UV:-.venv/bin/uv}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# compile LOCK [uv options]: torch takes part in the resolution but is not written, since which file of it a machine
# needs (CPU or CUDA) is the machine's business; so are the GPU libraries that the CUDA file asks for.
compile() {
    local lock=$1
    shift
    [[ ! -f $lock ]] || cp "$lock" "$scratch/$lock"
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
        --no-emit-index-url --no-emit-find-links --output-file "$scratch/$lock" "$@" \
        pyproject.toml requirements-torch.txt requirements-build.in
    {
        echo "# Made by scripts/lock.sh from pyproject.toml, requirements-torch.txt and requirements-build.in: do not edit."
        awk '/^[^ ]/ { keep = $0 !~ /^(torch|triton|nvidia-[a-z0-9-]+|cuda-[a-z-]+)==/ } keep' "$scratch/$lock"
    } >"$scratch/written"
    mv "$scratch/written" "$lock"
}

compile requirements.lock "$@"
compile requirements-dev.lock "$@" --extra dev --extra postgres --constraint requirements.lock
