"""`wmsched.compile` and `wmsched.load`: a module in, a function of its inputs out, in this process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPooling

import wmsched
from wmsched.base.errors import WmschedError
from wmsched.toolchain import loading
from wmsched.tune import compile, tuned_model
from wmsched.tune.compile import PROGRAM
from wmsched.tune.tuned_model import ALIGNED, SPINS

OPTIONS = ["--finalists", "1", "--seed", "1", "--places", "1"]


class Two(nn.Module):
    """Two inputs of two types, and of two outputs an object of a type that PyTorch has to be told of."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.dense = nn.Embedding(32, 16), nn.Linear(16, 8)

    def forward(self, ids, scale):
        found = self.dense(self.embedding(ids)) * scale
        return BaseModelOutputWithPooling(last_hidden_state=found, pooler_output=found.sum(1))


class Other:
    """Another library's array."""

    shape, dtype, __dlpack__ = (1, 1, 8), "float32", None


def example() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 32, (1, 6), generator=generator), torch.randn(1, 1, 8, generator=generator)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return Two().eval()


@pytest.fixture(scope="module")
def tuned(model, made_once):
    """Compiled in earnest, four measurements; no test may change its folder."""
    ids, scale = example()
    given = {"example_kwargs": {"scale": scale}, "trials": 4, "options": OPTIONS}
    compiled = []
    folder, _ = made_once(
        "compiled-two", lambda out: compiled.append(wmsched.compile(model, ids, out=out, **given))
    )
    return compiled[0] if compiled else wmsched.load(folder)


def alike(found, wanted) -> None:
    assert isinstance(found, BaseModelOutputWithPooling) and list(found) == list(wanted)
    for one, other in zip(found.values(), wanted.values()):
        assert one.shape == other.shape and np.allclose(one, other.detach(), atol=1e-5)


def test_tensors_in_tensors_out(tuned, model) -> None:
    ids, scale = example()
    found = tuned(ids, scale)
    assert all(isinstance(one, torch.Tensor) for one in found.values())
    alike(found, model(ids, scale))
    assert [spec["name"] for spec in tuned.inputs] == ["ids", "scale"]
    alike(tuned(ids, scale=scale), model(ids, scale))
    alike(tuned(scale=scale, ids=ids), model(ids, scale))
    first = found.last_hidden_state.clone()
    tuned(ids + 1, 2 * scale)
    assert torch.equal(found.last_hidden_state, first)  # what was returned is not written over


def test_arrays_in_arrays_out(tuned, model) -> None:
    ids, scale = example()
    found = tuned(ids.numpy(), scale.numpy())
    assert all(isinstance(one, np.ndarray) for one in found.values())
    alike(found, model(ids, scale))


def test_views_and_what_lies_anywhere_in_memory(tuned, model) -> None:
    """TVM's programs load whole vectors from where it would have put a tensor."""
    ids, scale = example()
    wide = torch.zeros(1, 1, 9)
    wide[:, :, 1:] = scale
    shifted = wide.flatten()[1:].view(1, 1, 8)
    assert shifted.data_ptr() % ALIGNED
    strided = torch.stack([ids, ids], -1)[..., 0]
    assert not strided.is_contiguous()
    alike(tuned(strided, shifted), model(ids, scale))
    alike(tuned(strided.numpy(), shifted.numpy()), model(ids, scale))
    alike(tuned(ids, scale.clone().requires_grad_()), model(ids, scale))


def test_the_callers_thread_is_not_tied_to_a_core(tuned) -> None:
    before = os.sched_getaffinity(0)
    tuned(*example())
    assert os.sched_getaffinity(0) == before


def test_arrays_and_tensors_may_take_turns(tuned, model) -> None:
    """Arrays after the first go a shorter way, into memory of the model's own."""
    ids, scale = example()
    wanted = [model(ids, k * scale) for k in range(6)]
    for k, (first, second) in enumerate([(0, 1), (1, 1), (1, 1), (0, 0), (1, 0), (1, 1)]):
        given = [one.numpy() if array else one for one, array in zip((ids, k * scale), (first, second))]
        for _ in range(2):
            for value, right in zip(tuned(*given).values(), wanted[k].values(), strict=True):
                assert isinstance(value, np.ndarray) == bool(first)
                np.testing.assert_allclose(value, right.detach().numpy(), rtol=1e-3, atol=1e-4)


def test_threads_call_it_one_after_the_other(tuned, model) -> None:
    ids, scale = example()
    wanted = [model(ids, k * scale) for k in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(50):
            found = pool.map(lambda k: tuned(ids, k * scale), range(4))
            for one, other in zip(found, wanted):
                alike(one, other)


PARALLEL = """
import sys, time, wmsched
wmsched.load(sys.argv[1])  # a model too small for a second thread
import numpy as np, tvm
from tvm import te
a = te.placeholder((4096,), name="a")
schedule = tvm.s_tir.Schedule(te.create_prim_func([a, te.compute((4096,), lambda i: a[i] + 1, name="b")]))
schedule.parallel(*schedule.get_loops("b"))
data = [tvm.runtime.tensor(np.zeros(4096, "float32")) for _ in range(2)]
tvm.compile(schedule.mod, "llvm")["main"](*data)
start = time.process_time(); time.sleep(0.3); print(time.process_time() - start)
"""


def spent_afterwards(folder, **environment: str) -> float:
    """Seconds of a processor that a process takes in 0.3 s after a parallel loop on two threads."""
    others = {name: value for name, value in os.environ.items() if name != SPINS}
    done = subprocess.run(
        [sys.executable, "-c", PARALLEL, str(folder)],
        env={**others, "TVM_NUM_THREADS": "2", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_after_a_call_threads_sleep_soon(tuned) -> None:
    assert spent_afterwards(tuned.folder) < 0.03 < spent_afterwards(tuned.folder, **{SPINS: "300000"})


@pytest.mark.parametrize(
    "change, error, said",
    [
        (lambda ids, scale: (ids,), TypeError, "given were 1 by place and none by name"),
        (lambda ids, scale: (ids, scale, scale), TypeError, "given were 3"),
        (lambda ids, scale: (ids, [1.0]), TypeError, "is a list"),
        (lambda ids, scale: (ids, Other()), TypeError, "is a Other"),
        (lambda ids, scale: (ids.int(), scale), ValueError, r"int32 \[1, 6\]; .* int64 \[1, 6\]"),
        (lambda ids, scale: (ids[:, :5], scale), ValueError, r"int64 \[1, 5\]"),
    ],
)
def test_other_inputs_are_refused(tuned, change, error, said) -> None:
    with pytest.raises(error, match=said):
        tuned(*change(*example()))
    with pytest.raises(TypeError, match="other"):
        tuned(*example(), other=1)


@pytest.fixture
def folder(tuned, tmp_path):
    """A copy of what was compiled."""
    shutil.copytree(tuned.folder, tmp_path / "again")
    return tmp_path / "again"


def test_a_folder_is_loaded_again_and_kept(folder, model) -> None:
    again = wmsched.load(folder)
    alike(again(*example()), model(*example()))
    assert again.report["seconds"]["untuned"] > 0
    program = (folder / PROGRAM).read_bytes()
    with pytest.raises(WmschedError, match=r"(?s)exit status 1: .*holds the tuning of"):
        wmsched.compile(nn.Linear(4, 4).eval(), torch.ones(2, 4), out=folder, resume=True)
    assert (folder / PROGRAM).read_bytes() == program


@pytest.mark.slow
def test_a_folder_goes_on(folder, model) -> None:
    with pytest.raises(WmschedError, match="--resume keeps them"):
        wmsched.compile(model, example(), out=folder, trials=4, options=OPTIONS)
    more = wmsched.compile(model, example(), out=folder, trials=5, resume=True, options=OPTIONS)
    assert [path.name for path in folder.glob("*.pt2")] == [PROGRAM]
    assert sum(task["trials"] for task in more.report["tasks"]) == 5


def test_what_is_no_finished_folder_is_named(tuned, tmp_path) -> None:
    with pytest.raises(WmschedError, match=r"model\.json is not there: .*--resume"):
        wmsched.load(tmp_path)
    broken = tmp_path / "broken"
    shutil.copytree(tuned.folder, broken)
    (broken / "model.so").write_bytes(b"no library")
    with pytest.raises(WmschedError, match=r"model\.so cannot be loaded .* built with TVM"):
        wmsched.load(broken)
    (broken / "report.json").write_text("{")
    with pytest.raises(WmschedError, match=r"report\.json cannot be read"):
        wmsched.load(broken)


def test_a_library_for_another_processor_is_refused(tuned, tmp_path, without_avx512) -> None:
    there = tmp_path / "there"
    shutil.copytree(tuned.folder, there)
    about = json.loads((there / "model.json").read_text())
    target = json.loads(about["target"]) | {"mcpu": "skylake-avx512"}
    (there / "model.json").write_text(json.dumps(about | {"target": json.dumps(target)}))
    with pytest.raises(WmschedError, match=r"model\.so was built .*skylake.*use avx512f.*on this machine"):
        wmsched.load(there)


def test_what_cannot_be_compiled_is_said(model, tmp_path, monkeypatch) -> None:
    with pytest.raises(ValueError, match=r"training mode: call its eval\(\)"):
        wmsched.compile(Two(), example(), out=tmp_path)
    with pytest.raises(TypeError, match="a dict is no model"):
        wmsched.compile({}, out=tmp_path)
    with pytest.raises(WmschedError, match=r"torch\.export cannot export"):
        wmsched.compile(model, (), out=tmp_path)
    asked = []
    monkeypatch.setattr(compile, "_run", lambda command, folder: asked.append(command))
    with pytest.raises(WmschedError, match=r"model\.json is not there"):  # as nothing was run
        wmsched.compile(tmp_path / "nowhere.pt2", out=tmp_path)
    assert asked[0][3:5] == ["compile", str(tmp_path / "nowhere.pt2")]  # a file's name, which is read there
    assert not list(tmp_path.iterdir())


def test_a_path_that_was_loaded_before_gives_what_is_in_the_file_now(tmp_path) -> None:
    """The loader knows a library by its path, whatever the file is by then."""
    path = tmp_path / "model.so"
    path.write_text("first")
    with loading.loadable(path) as given:
        assert given == path
    with loading.loadable(path) as given:
        assert given == path  # the same file
    (tmp_path / "fresh").write_text("second")
    os.replace(tmp_path / "fresh", path)
    with loading.loadable(path) as given:
        assert given != path and given.read_text() == "second"
    assert not given.exists()


def test_what_a_folder_tuned_anew_computes(tuned, model, tmp_path) -> None:
    """The library of the folder is another one; the one that was loaded stays what it was."""
    ids, scale = example()
    own = tmp_path / "own"
    shutil.copytree(tuned.folder, own)
    before = wmsched.load(own)
    alike(before(ids, scale), model(ids, scale))
    fresh = tmp_path / "fresh.so"
    shutil.copyfile(own / "model.so", fresh)
    os.replace(fresh, own / "model.so")
    alike(wmsched.load(own)(ids, scale), model(ids, scale))
    alike(before(ids, scale), model(ids, scale))


def test_outputs_that_are_the_library_s_or_the_caller_s_are_copied(monkeypatch) -> None:
    found = tuned_model.TunedModel.__new__(tuned_model.TunedModel)
    found._first = found._constant = None
    monkeypatch.setattr(tuned_model, "address", lambda one: one)
    assert found._shared([10, 20, 30], [1]) == {0, 1, 2}  # the first time nothing is known
    assert found._shared([11, 20, 1], [1]) == {1, 2}  # a table of the model's, and the input itself
    assert found._shared([12, 20, 32], [1]) == {1} and found._first is None


FORKED = """
import os, sys, numpy as np, wmsched
model = wmsched.load(sys.argv[1])  # a model too small for a second thread: another program in its place
import tvm
from tvm import te
from wmsched.toolchain import parallel_launch
count = 1 << 18  # enough for our launch to share
a = te.placeholder((count,), name="a")
schedule = tvm.s_tir.Schedule(te.create_prim_func([a, te.compute((count,), lambda i: a[i] + 1, name="b")]))
schedule.parallel(*schedule.get_loops("b"))
data = [tvm.runtime.tensor(np.zeros(count, "float32")) for _ in range(2)]
tvm.compile(schedule.mod, "llvm").export_library(sys.argv[2])
main = tvm.runtime.load_module(sys.argv[2])["main"]
model._ours = parallel_launch.install(sys.argv[2])
assert model._ours == (os.environ[parallel_launch.OFF] == "1")

def run(*_):
    main(*data)
    return data[1]

model._returns, model._function = None, run
given = [np.zeros(spec["shape"], spec["dtype"]) for spec in model.inputs]

def right():
    data[1].copyfrom(np.zeros(count, "float32"))
    return all((model(*given) == 1).all() for _ in range(5))

assert right()  # the threads are there
child = os.fork()
if not child:
    grandchild = os.fork()
    same = right()
    if grandchild:
        same = same and os.waitpid(grandchild, 0)[1] == 0
    os._exit(0 if same else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("launch", ["1", "0"])  # ours, TVM's own
def test_copies_of_the_process_may_call_it(tuned, tmp_path, launch) -> None:
    """As a server's workers, which its master makes when the model is loaded."""
    environment = os.environ | {"TVM_NUM_THREADS": "2", "WMSCHED_PARALLEL_LAUNCH": launch}
    command = [sys.executable, "-c", FORKED, str(tuned.folder), str(tmp_path / "program.so")]
    assert subprocess.run(command, env=environment, timeout=120, check=False).returncode == 0
