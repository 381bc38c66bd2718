#!/usr/bin/env bash
# Makes .venv: the pinned requirements, this repository (editable) and AutoScheduler's TVM in .venv/tvm-ansor.
# Run again, it compares one stamp and ends. pip's own configuration (PIP_*, pip.conf) is used as it is.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv
stamp=$venv/.wmsched-setup
inputs=(requirements.txt requirements-dev.txt requirements-meta.txt setup.py scripts/setup.sh wmsched/toolchain/worker_site/sitecustomize.py)
key=$(cat "${inputs[@]}" | sha256sum | cut -d' ' -f1)

# Three things must hold: same inputs, a venv whose interpreter still starts, the wheel in place.
if [[ -f $stamp && $(<"$stamp") == "$key" && -x $venv/bin/python && -f $venv/tvm-ansor/sitecustomize.py ]]; then
    exit 0
fi
rm -f "$stamp"

if ! $venv/bin/python -c 'import pip' 2>/dev/null; then
    python=${PYTHON:-python3}
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
        echo "setup: $python is older than Python 3.11, for which requirements*.txt are pinned;" \
            "name another one: make setup PYTHON=python3.11" >&2
        exit 1
    }
    echo "setup: a virtual environment in $venv"
    "$python" -m venv --clear "$venv"
fi

# Bytecode is left to the first import of each module: most are never imported. Containers often forbid it to be
# written, and then every start would compile torch anew: not here, and not in what `make` runs.
unset PYTHONDONTWRITEBYTECODE

# The two beside each other.
$venv/bin/python -m wmsched.toolchain install &
ansor=$!
trap 'kill $ansor 2>/dev/null || true' EXIT
echo "setup: the pinned requirements and AutoScheduler's TVM in $venv/tvm-ansor (a few minutes the first time)"
$venv/bin/python -m pip install -qq --no-compile -r requirements.txt -r requirements-dev.txt -r requirements-meta.txt
wait $ansor
echo "setup: wmsched itself, editable"
$venv/bin/python -m pip install -qq --no-deps --no-build-isolation -e .
echo "setup: a first start of each part"
PYTHONPATH=$($venv/bin/python -m wmsched.toolchain) $venv/bin/python -c 'import wmsched.ansor.task_scheduler' &
ansor=$!
$venv/bin/python -c 'import data_builder.cli.main, wmsched.cli.main, wmsched.learn.training.train, wmsched.metaschedule.tune'
wait $ansor
trap - EXIT

# Written last and moved into place, so that a set-up cut short is done again.
echo "$key" >"$stamp.new"
mv "$stamp.new" "$stamp"
echo "setup: done"
