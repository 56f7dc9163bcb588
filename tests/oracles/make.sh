#!/bin/sh
# Make the environments of the programs that tests compare dlc with: .venv-oracles/NAME at the top.
#
#   tests/oracles/make.sh [NAME]...     all of them without a name; those that exist are left alone
#
# They are apart from .venv because their packages are large, and pinned because their parsers move.
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python3}

packages() {
    case $1 in
    mlir) echo "jaxlib==0.10.2 numpy>=2.1,<3 ml_dtypes>=0.5,<1" ;; # --no-deps: scipy is not needed
    xdsl) echo "xdsl==0.74.0" ;;
    *)
        echo "there is no oracle $1; there are mlir and xdsl" >&2
        exit 2
        ;;
    esac
}

[ $# -gt 0 ] || set -- mlir xdsl
for name in "$@"; do
    wanted=$(packages "$name")
    venv=$top/.venv-oracles/$name
    if [ -e "$venv/made" ] && [ "$(cat "$venv/made")" = "$wanted" ]; then
        continue
    fi
    rm -rf "$venv"
    "$python" -m venv "$venv"
    deps=
    [ "$name" = mlir ] && deps=--no-deps
    # shellcheck disable=SC2086 # the packages are words
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check $deps $wanted
    echo "$wanted" >"$venv/made"
done
