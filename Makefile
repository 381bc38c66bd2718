# `make` alone lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# set-up leaves bytecode to the first import, so that import must be let write it
unexport PYTHONDONTWRITEBYTECODE

PY := $(CURDIR)/.venv/bin/python
BIN := $(CURDIR)/.venv/bin
# AutoScheduler's TVM and MetaSchedule's never share a process; this prefix picks the first.
ANSOR := PYTHONPATH=$(CURDIR)/.venv/tvm-ansor
# Tests share the cores; those that compare times (`alone`) come after, one by one. Threads that have
# nothing to do sleep: by default those of OpenMP and of TVM keep the cores from the other tests.
JOBS ?= $(shell n=$$(nproc); echo $$((n < 4 ? n : 4)))
PYTEST := OMP_WAIT_POLICY=PASSIVE TVM_THREAD_POOL_SPIN_COUNT=0 $(PY) -m pytest -n $(JOBS) --dist worksteal -m "not slow and not alone"
ALONE := $(PY) -m pytest -m "alone and not slow"

# May be given on the command line: make bench-cpu TASKS=resnet50/6 ARGS="--seeds 0,1"
OUT ?= work
DATA ?= ../shared/data/x86-spr-2core
# that of this processor, as `wmsched tune` takes it
BUNDLE ?= $(if $(shell grep -qw avx2 /proc/cpuinfo && ! grep -qw avx512f /proc/cpuinfo && echo yes),x86-avx2,x86-avx512)
TASKS ?= representatives
MINUTES ?= 120
MODELS ?= resnet50 bert-base mobilenetv2 gpt2
TRIALS ?= 400
ARGS ?=
RUN = $(PY) -m benchmarks.run --tasks $(TASKS) --cache $(OUT)/cache
# One representative of each kind of operator: what `make bench-cpu` does in under 20 minutes on two cores.
KINDS = resnet50/0,mobilenetv2/15,mobilenetv2/21,resnet3d18/12,resnet50/24,bert-base/0,bert-base/5,opt-1.3b-attention/3,gpt2/7,gpt2/8,resnet50/25,mobilenetv2/31
# DATA has measure_records/ and workloads.json.gz, as data_builder/logs/x86-zen4-2core has; the default's records are
# not published. `tenset` and `tlp` are fitted to them; without them they are left out.
TENSET = $(if $(wildcard $(DATA)/workloads.json.gz),tenset$(comma)tlp$(comma))
ZEN4 = data_builder/logs/x86-zen4-2core
ICX = data_builder/logs/x86-icx-2core
AVX2_LOGS = x86-emr-avx2-2core x86-zen3-2core
META_LOGS = meta-zen4-2core meta-icx-2core
CUDA_LOGS = meta-h200 meta-h100
META_DATASET = $(BIN)/wmsched-data build data_builder/logs/$$machine --out $(OUT)/ds-$$machine --jobs 2 --states-per-workload 4
TENSET_LOGS = $(if $(TENSET),$(foreach logs,$(DATA) $(ZEN4) $(ICX),--training $(logs)/measure_records --workloads $(logs)/workloads.json.gz))
comma := ,
ABLATED = wmsched@$(OUT)/bundles/x86-initial-state,wmsched@$(OUT)/bundles/x86-no-phi,wmsched@$(OUT)/bundles/x86-no-state,wmsched@$(OUT)/bundles/x86-regression

.PHONY: help setup lint docs test test-unit test-backend test-meta test-onnx test-torch-ops test-zoo test-slow \
	bench-cpu bench-cpu-full bench-ablations bench-pytorch bench-models bench-meta bench-construct bench-runtimes bench-many-cores bench-gpu train-sample train-x86 train-x86-avx2 train-x86-meta train-cuda-meta train-meta train-cuda collect clean-logs offline clean

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/\1\t\2/' | \
	    while IFS=$$'\t' read -r name text; do printf '  make %-15s %s\n' "$$name" "$$text"; done

setup: ## .venv with everything in it; does nothing when it is up to date
	@scripts/setup.sh

lint: setup ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup ## the site in build/docs; a warning or a dead link is an error
	$(BIN)/sphinx-build -W --keep-going -q -b html docs build/docs
	@echo "build/docs/index.html"

test: setup ## set-up, lint and every test that is not slow
# mypy takes one core for a minute, which the tests that need no TVM leave it
	@$(MAKE) lint & lint=$$!; status=0; $(MAKE) test-unit || status=$$?; wait $$lint || status=$$?; exit $$status
	@$(MAKE) test-backend test-meta

test-unit: setup ## tests that need no TVM
	$(PYTEST) tests/unit
	$(ALONE) tests/unit/toolchain/test_parallel_launch.py

test-backend: setup ## tests with AutoScheduler's TVM
	$(ANSOR) $(PYTEST) tests/backend
	$(ANSOR) $(ALONE) tests/backend/measure/test_cache_flush.py

test-meta: setup ## tests with MetaSchedule's TVM
ifneq ($(wildcard tests/meta),)
	$(PYTEST) tests/meta
	$(ALONE) tests/meta/measure/test_cache_flush.py
endif

# a run goes on where an earlier one stopped; SHARD=0/4 takes every fourth case
ONNX_LINES ?= $(OUT)/onnx-backend.jsonl
WHO ?= ours
SHARD ?= 0/1
test-onnx: setup ## ONNX's backend tests, a worker process for the cases: WHO=ours,stock,onnxruntime; 4 minutes each
	$(PY) -m benchmarks.operators.onnx_suite --out $(ONNX_LINES) --who $(WHO) --shard $(SHARD) $(ARGS)

TORCH_LINES ?= $(OUT)/torch-ops.jsonl
test-torch-ops: setup ## PyTorch's operator samples, a worker process for the cases: WHO=ours,stock; 8 minutes each
	$(PY) -m benchmarks.operators.torch_suite --out $(TORCH_LINES) --who $(WHO) --shard $(SHARD) $(ARGS)

# timm and torchvision are extras, beside torch or in the folder WMSCHED_ZOO: without them their models are left out
ZOO_LINES ?= $(OUT)/zoo.jsonl
test-zoo: setup ## architectures of transformers, and of timm and torchvision where installed, tiny, beside PyTorch: hours
	$(PY) -m benchmarks.zoo.suite --out $(ZOO_LINES) --shard $(SHARD) $(ARGS)

test-slow: setup ## the slow tests, all folders
	$(PY) -m pytest -m slow tests/unit || test $$? -eq 5
	$(ANSOR) $(PY) -m pytest -m slow tests/backend || test $$? -eq 5
ifneq ($(wildcard tests/meta),)
	$(PY) -m pytest -m slow tests/meta || test $$? -eq 5
endif

bench-cpu: TASKS := $(if $(filter file undefined,$(origin TASKS)),$(KINDS),$(TASKS))
bench-cpu: setup ## stock Ansor and wmsched in turn, 16 trials a task, 12 kinds of operators; results in work/bench
	$(RUN) --methods ansor,wmsched --budgets 16 --bundle $(BUNDLE) --out $(OUT)/bench/cpu-16.jsonl $(ARGS)
	@$(PY) -m benchmarks.report $(OUT)/bench/cpu-16.jsonl --md $(OUT)/bench/cpu-16.md --png $(OUT)/bench/cpu-16.png
	@echo
	@echo "Results: $(OUT)/bench/cpu-16.jsonl, cpu-16.md and cpu-16.png beside it. Further:"
	@echo "  make bench-cpu TASKS=representatives       all 22 representatives: 25 minutes"
	@echo "  make bench-cpu TASKS=all                   every task of the seven models: hours"
	@echo "  make bench-cpu-full                        16 and 64 trials, all methods, three seeds: many hours"
	@echo "  $(BIN)/python -m benchmarks.report $(OUT)/bench/*.jsonl --html FILE        one page with everything"

bench-cpu-full: setup ## 16 and 64 trials, all methods, three seeds; 64 also in rounds of 16: many hours
	$(RUN) --methods ansor,random,$(TENSET)wmsched,wmsched-online --budgets 16,64 --seeds 0,1,2 \
	    --bundle $(BUNDLE) $(TENSET_LOGS) --out $(OUT)/bench/cpu-full.jsonl $(ARGS)
	$(RUN) --methods ansor,$(TENSET)wmsched,wmsched-online --budgets 64 --round-size 16 --seeds 0,1,2 \
	    --bundle $(BUNDLE) $(TENSET_LOGS) --out $(OUT)/bench/cpu-full.jsonl $(ARGS)

bench-ablations: setup ## Figure 9: G without a part of its input, or with another objective, beside the paper's; DATA; hours
	test -d $(OUT)/ds-ablations || $(BIN)/wmsched-data build $(DATA)/measure_records --workloads $(DATA)/workloads.json.gz \
	    --exclude zoo --drop-aliased --states-per-workload 1 --out $(OUT)/ds-ablations
	refit() { name=$$1; shift; test -d $(OUT)/bundles/$$name || $(BIN)/wmsched train --data $(OUT)/ds-ablations \
	    --parts-of x86-avx512-paper --out $(OUT)/bundles/$$name "$$@"; }; \
	refit x86-full; refit x86-initial-state --state initial; refit x86-no-phi --no-phi; \
	refit x86-no-state --state none; refit x86-regression --objective reg:squarederror
	$(RUN) --budgets 64 --keep-workers --bundle $(OUT)/bundles/x86-full --out $(OUT)/bench/ablations.jsonl $(ARGS) \
	    --methods wmsched,$(ABLATED)
	@$(PY) -m benchmarks.report $(OUT)/bench/ablations.jsonl --md $(OUT)/bench/ablations.md --html $(OUT)/bench/ablations.html

bench-pytorch: setup ## the seven models in PyTorch, eager and compiled, on the same cores; for the report
	$(PY) -m benchmarks.models.pytorch --out $(OUT)/bench/pytorch.jsonl $(ARGS)

bench-models: setup ## whole models as `wmsched tune` leaves them beside PyTorch: MODELS, TRIALS each; 5 to 10 minutes a model
	$(PY) -m benchmarks.models.tuned_models $(MODELS) --trials $(TRIALS) --out $(OUT)/bench/models.jsonl $(ARGS)

bench-meta: setup ## stock xgb and wmsched in turn in MetaSchedule's search, 16 trials, the 22 representatives: 25 minutes
	$(RUN) --methods $(or $(METHODS),meta-xgb$(comma)meta-wmsched) --budgets 16 --bundle $(if $(filter file,$(origin BUNDLE)),x86-meta,$(BUNDLE)) \
	    --out $(OUT)/bench/meta-16.jsonl $(ARGS)
	@$(PY) -m benchmarks.report $(OUT)/bench/meta-16.jsonl --md $(OUT)/bench/meta-16.md --png $(OUT)/bench/meta-16.png

bench-construct: setup ## the first choice of each way to construct a schedule, the 22 representatives: 12 minutes
	$(PY) -m benchmarks.construct --out $(OUT)/bench/construct.jsonl $(ARGS)

bench-runtimes: setup ## whole models beside onnxruntime, OpenVINO (pip install openvino) and PyTorch, in turns: MODELS; 20 minutes
	$(PY) -m benchmarks.runtimes.compare --folder $(OUT)/runtimes --out $(OUT)/bench/runtimes.jsonl \
	    $(if $(filter-out file,$(origin MODELS)),--models $(subst $(eval ) ,$(comma),$(strip $(MODELS)))) $(ARGS)

bench-many-cores: setup ## for a machine with many cores that is lent for minutes: representatives, two models, a busy machine
	$(PY) -m benchmarks.construct --out $(OUT)/bench/construct-$$(nproc).jsonl $(ARGS)
	$(PY) -m benchmarks.runtimes.compare --folder $(OUT)/runtimes --out $(OUT)/bench/runtimes-$$(nproc).jsonl \
	    --models resnet50,bert-base
	ln -sfn constructed $(OUT)/runtimes/tuned
	$(PY) -m benchmarks.runtimes.busy --folder $(OUT)/runtimes --out $(OUT)/bench/busy-$$(nproc).jsonl \
	    --models resnet50,bert-base --served resnet50 --overhead-model resnet50 --processes 3 --onnxruntime $(PY)

bench-gpu: setup ## the benchmark on an NVIDIA GPU, in MetaSchedule; AutoScheduler too where its TVM has CUDA
	@scripts/bench-gpu.sh --tasks $(TASKS) --out $(OUT)/bench/gpu.jsonl $(ARGS)

clean-logs: setup ## DATA without programs that TVM's wheel, unmended, compiled wrong: for DATA=work/clean (4 minutes)
	$(BIN)/wmsched-data build $(DATA)/measure_records --workloads $(DATA)/workloads.json.gz \
	    --drop-aliased --states-per-workload 1 --out $(OUT)/ds-clean
	$(BIN)/wmsched-data export-logs $(OUT)/ds-clean --out $(OUT)/clean/measure_records
	cp $(DATA)/workloads.json.gz $(OUT)/clean/

offline: setup ## how well models rank the measured programs of networks they have not seen (needs DATA, such as data_builder/logs/x86-zen4-2core)
	$(PY) -m benchmarks.offline --records $(DATA)/measure_records --workloads $(DATA)/workloads.json.gz \
	    --methods random,plain,stock,wmsched --out $(OUT)/offline.jsonl --md $(OUT)/offline.md $(ARGS)
	@cat $(OUT)/offline.md

train-sample: setup ## logs to bundle with the shipped sample alone: the whole pipeline in under 10 minutes
	$(BIN)/wmsched-data build data_builder/samples/measure_records --workloads data_builder/samples/workloads.json.gz \
	    --out $(OUT)/sample-ds --states-per-workload 4
	$(BIN)/wmsched train --data $(OUT)/sample-ds --out $(OUT)/sample-bundle --minutes 3

train-x86: setup ## the shipped bundles again, from the logs shipped here and DATA, the Sapphire Rapids records, which are not published
	$(BIN)/wmsched-data build $(DATA)/measure_records --workloads $(DATA)/workloads.json.gz \
	    --exclude zoo --drop-aliased --out $(OUT)/ds-x86
	$(BIN)/wmsched-data build $(ZEN4)/measure_records --workloads $(ZEN4)/workloads.json.gz \
	    --exclude zoo --states-per-workload 4 --out $(OUT)/ds-zen4
	$(BIN)/wmsched-data build $(ICX)/measure_records --workloads $(ICX)/workloads.json.gz \
	    --exclude zoo --states-per-workload 4 --out $(OUT)/ds-icx
	$(BIN)/wmsched-data merge $(OUT)/ds-x86 $(OUT)/ds-zen4 $(OUT)/ds-icx --out $(OUT)/ds-avx512
	$(BIN)/wmsched train --data $(OUT)/ds-avx512 --out $(OUT)/bundles/x86-avx512 --state none
	$(BIN)/wmsched train --data $(OUT)/ds-x86 --out $(OUT)/bundles/x86-avx512-paper --minutes 9

train-x86-avx2: setup ## the shipped bundle for AVX2 again, from the logs shipped here and what train-x86 built
	for machine in $(AVX2_LOGS); do \
	    $(BIN)/wmsched-data build data_builder/logs/$$machine/measure_records --workloads data_builder/logs/$$machine/workloads.json.gz \
	        --exclude zoo --states-per-workload 1 --out $(OUT)/ds-$$machine; \
	done
	$(BIN)/wmsched-data merge $(foreach machine,$(AVX2_LOGS),$(OUT)/ds-$(machine)) --out $(OUT)/ds-avx2
	$(BIN)/wmsched finetune --bundle x86-avx512 --data $(OUT)/ds-avx2 --old $(OUT)/ds-avx512 --out $(OUT)/bundles/x86-avx2

train-meta: setup ## MetaSchedule: collect here for MINUTES (goes on where it stopped; TARGET), then train on what there is
	$(BIN)/wmsched-data collect --scheduler meta --workloads train --out $(OUT)/meta-db --trials 48 \
	    --minutes $(MINUTES) $(if $(TARGET),--target '$(TARGET)') $(ARGS)
	n=$$(wc -l < $(OUT)/meta-db/database_tuning_record.json); \
	$(BIN)/wmsched-data build $(OUT)/meta-db --out $(OUT)/ds-meta-$$n --jobs 2 --states-per-workload 4; \
	$(BIN)/wmsched train --data $(OUT)/ds-meta-$$n --out $(OUT)/bundles/meta-$$n --state none

# as nvidia-smi numbers them, for gpu-target.sh
train-cuda: export CUDA_DEVICE_ORDER := PCI_BUS_ID
train-cuda: setup ## a bundle for this machine's NVIDIA GPU: collect for MINUTES, then train
	@target=$$(scripts/gpu-target.sh train-cuda) && $(MAKE) train-meta OUT=$(OUT)/cuda TARGET="$$target"

train-x86-meta: setup ## the shipped MetaSchedule bundle again, from the databases shipped here
	for machine in $(META_LOGS); do $(META_DATASET); done
	$(BIN)/wmsched-data merge $(foreach machine,$(META_LOGS),$(OUT)/ds-$(machine)) --out $(OUT)/ds-meta
	$(BIN)/wmsched train --data $(OUT)/ds-meta --out $(OUT)/bundles/x86-meta --state none

train-cuda-meta: setup ## the shipped bundle for GPUs again, from the databases shipped here
	for machine in $(CUDA_LOGS); do $(META_DATASET); done
	$(BIN)/wmsched-data merge $(foreach machine,$(CUDA_LOGS),$(OUT)/ds-$(machine)) --out $(OUT)/ds-cuda-meta
	$(BIN)/wmsched train --data $(OUT)/ds-cuda-meta --out $(OUT)/bundles/cuda-meta --state none

collect: setup ## sample and measure schedules of the workloads of DATA here; logs in work/logs, goes on where it stopped
	$(BIN)/wmsched-data collect --workloads $(DATA)/workloads.json.gz --out $(OUT)/logs $(ARGS)

clean: ## caches and build artefacts; leaves .venv and work/ alone
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .pkl_memoize_py3
	find wmsched data_builder benchmarks tests -name __pycache__ -type d -prune -exec rm -rf {} +
