#!/usr/bin/env bash
# The benchmark on an NVIDIA GPU. Arguments are passed on to benchmarks.run.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python

if ! nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then
    echo "bench-gpu: no GPU on this machine (nvidia-smi lists none)" >&2
    exit 1
fi
cuda=$($python - <<'E2'
from wmsched.resolve import autoscheduler_tvm

print(autoscheduler_tvm().cuda(0).exist)
E2
)
if [[ $cuda != True ]]; then
    echo "bench-gpu: AutoScheduler's TVM here is built without CUDA; put your own TVM 0.8-0.19 with CUDA on PYTHONPATH" >&2
    exit 1
fi
exec $python -m benchmarks.run --target cuda "$@"
