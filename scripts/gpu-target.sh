#!/usr/bin/env bash
# Prints the TVM target of this machine's GPU, or of the one that GPU names ("NVIDIA H200"), as JSON.
# Without a GPU: one line, and exit status 1. $1 is what the line begins with.
set -euo pipefail
cd "$(dirname "$0")/.."

name=${GPU:-}
capability=
if [[ -z $name ]]; then
    first=${CUDA_VISIBLE_DEVICES:-} # which nvidia-smi does not look at
    first=${first%%,*}
    found=$(nvidia-smi ${first:+--id="$first"} --query-gpu=name,compute_cap --format=csv,noheader 2>/dev/null | head -n 1) || found=
    name=${found%,*}
    capability=${found##*, }
    if [[ -z $found || $name == "$found" ]]; then
        echo "${1:-gpu-target}: no GPU on this machine (nvidia-smi lists none)" >&2
        exit 1
    fi
fi
exec .venv/bin/python - "$name" "$capability" <<'E2'
import json
import sys

from wmsched.base.errors import UnknownName
from wmsched.features.gpus import cuda_target

try:
    print(json.dumps(cuda_target(*sys.argv[1:])))
except UnknownName as error:
    sys.exit(f"gpu-target: {error}")
E2
