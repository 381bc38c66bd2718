#!/usr/bin/env bash
# The benchmark on an NVIDIA GPU: MetaSchedule's search, and AutoScheduler's where its TVM has CUDA.
# BUNDLE is a world model of traces on CUDA, by default the shipped one, ANSOR_BUNDLE one of AutoScheduler's
# schedules there; without one its search is run with its stock model and a random one. Arguments are passed
# on to benchmarks.run.
# With `--simulate model` no GPU is needed: a made-up one called as GPU says, and nothing that is a result.
set -euo pipefail
export CUDA_DEVICE_ORDER=PCI_BUS_ID # as nvidia-smi numbers them, for gpu-target.sh
cd "$(dirname "$0")/.."
python=.venv/bin/python

out=work/bench/gpu.jsonl simulated=
arguments=("$@")
for ((i = 0; i < $#; i++)); do
    case ${arguments[i]} in
        --out) out=${arguments[i + 1]} ;;
        --out=*) out=${arguments[i]#--out=} ;;
        --simulate | --simulate=*) simulated=yes ;;
    esac
done
if [[ -z $simulated ]]; then
    unset GPU # of the machine, not of somebody's environment
elif [[ -z ${GPU:-} ]]; then
    echo "bench-gpu: --simulate needs the name of a GPU, as GPU=\"RTX 4090\"" >&2
    exit 1
fi
target=$(scripts/gpu-target.sh bench-gpu)

has_cuda() { # in the process of the TVM that $1 imports
    [[ $($python -c "$1; print(tvm.cuda(0).exist)" 2>/dev/null | tail -n 1) == True ]]
}
if [[ -z $simulated ]] && ! has_cuda "from wmsched.toolchain.resolve import meta_schedule_tvm; tvm = meta_schedule_tvm()"; then
    echo "bench-gpu: apache-tvm finds no CUDA device here: its wheel needs the driver's libcuda.so.1" >&2
    exit 1
fi
run=($python -m benchmarks.run --budgets 16,64 --out "$out")

status=0
"${run[@]}" --methods meta-xgb,meta-wmsched,meta-wmsched-search,meta-wmsched-parts --bundle "${BUNDLE:-cuda-meta}" --target "$target" "$@" || status=$?
if [[ -n $simulated ]]; then
    :
elif has_cuda "from wmsched.toolchain.resolve import autoscheduler_tvm; tvm = autoscheduler_tvm()"; then
    old="cuda -model=$($python -c 'import json, sys; t = json.loads(sys.argv[1]); print(t["model"], "-arch=" + t["arch"])' "$target")"
    if [[ -n ${ANSOR_BUNDLE:-} ]]; then
        "${run[@]}" --methods ansor,wmsched --bundle "$ANSOR_BUNDLE" --target "$old" "$@" || status=$?
    else
        "${run[@]}" --methods ansor,random --target "$old" "$@" || status=$?
    fi
else
    echo "bench-gpu: AutoScheduler is left out: its TVM has no CUDA (put your own TVM 0.8-0.19 with CUDA on PYTHONPATH)" >&2
fi
if [[ -s $out ]]; then
    $python -m benchmarks.report "$out" --md "${out%.jsonl}.md" --png "${out%.jsonl}.png"
fi
exit "$status"
