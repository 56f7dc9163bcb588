#!/bin/sh
# Make the locks from pyproject.toml: one version of each package for every Python from 3.11 on, with the
# hashes of all its files. Versions stay as they are where they still fit.
#
#   supply_chain/lock.sh [OPTION]...    options of `uv pip compile`: --upgrade, --upgrade-package NAME
set -eu

cd "$(dirname "$0")/.."
uv=.venv-supply-chain/bin/uv
export UV_NO_CONFIG=1 UV_PYTHON_DOWNLOADS=never # no choices of this machine, no interpreters
new=$(mktemp)
trap 'rm -f "$new"' EXIT

lock() { # lock NAME OPTION...
    file=supply_chain/requirements-$1.txt
    shift
    cat "$file" >"$new" # the versions that stay
    "$uv" pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest \
        --only-binary :all: --generate-hashes --custom-compile-command "make lock" \
        --output-file "$new" "$@"
    for python in 3.11 3.12 3.13; do
        for platform in x86_64-manylinux_2_28 aarch64-manylinux_2_28; do
            # This fails where a package has no wheel.
            "$uv" pip compile --quiet --no-deps --only-binary :all: \
                --python-version "$python" --python-platform "$platform" --output-file /dev/null "$new"
        done
    done
    cmp -s "$new" "$file" || cat "$new" >"$file"
}

lock dev --extra dev "$@" pyproject.toml
lock supply-chain --group supply-chain "$@"
for version in 12.9 13.0; do
    lock "cuda-$version" --no-deps --group "cuda-$(echo "$version" | tr . -)" "$@"
done
