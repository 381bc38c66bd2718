"""pip's CUDA is used where a driver is, and only what is not found elsewhere."""

from __future__ import annotations

import os
import sys

import pytest

from wmsched.toolchain import cuda

TOOLKIT = cuda._toolkit


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Python's packages with pip's CUDA among them, on a machine without a toolkit."""
    folder = tmp_path / "nvidia" / "cu13"
    (folder / "lib").mkdir(parents=True)
    for name in (cuda.RUNTIME, "libnvrtc-builtins.so.13.0", "libnvrtc.so.13"):
        (folder / "lib" / name).touch()
    (folder / "include").mkdir()
    (folder / "include" / "cuda_runtime.h").touch()
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.setattr(cuda, "_toolkit", lambda: False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/other")
    monkeypatch.delitem(sys.modules, "torch", raising=False)  # as in a process that has not imported it
    return folder


@pytest.fixture
def toolkit(packages, tmp_path, monkeypatch):
    """Installs a toolkit with this line in its cuda.h."""
    folder = tmp_path / "toolkit"
    (folder / "bin").mkdir(parents=True)
    (folder / "include").mkdir()
    (folder / "bin" / "nvcc").touch(mode=0o755)
    (folder / "include" / "cuda_runtime.h").touch()
    monkeypatch.setenv("PATH", str(folder / "bin"))
    monkeypatch.setattr(cuda, "_toolkit", TOOLKIT)
    return lambda line: (folder / "include" / "cuda.h").write_text(line + "\n")


def loader(*there: str):
    """Of libraries that the system finds by name; files always load."""
    loaded: list[str] = []

    def load(name: str) -> None:
        if "/" not in name and name not in there:
            raise OSError(f"{name}: cannot open shared object file")
        loaded.append(name)

    return load, loaded


def test_without_a_driver_nothing_is_done(packages) -> None:
    load, loaded = loader(cuda.RUNTIME)
    cuda.use(load)
    assert not loaded  # the driver is asked for first
    assert "CUDA_PATH" not in os.environ and os.environ["LD_LIBRARY_PATH"] == "/opt/other"


def test_with_a_driver_and_no_toolkit_pips_are_used_here_and_in_children(packages) -> None:
    load, loaded = loader(cuda.DRIVER)
    cuda.use(load)
    names = [cuda.RUNTIME, "libnvrtc-builtins.so.13.0", "libnvrtc.so.13"]
    assert loaded == [cuda.DRIVER, *(str(packages / "lib" / name) for name in names)]
    assert os.environ["LD_LIBRARY_PATH"] == f"{packages / 'lib'}:/opt/other"
    assert os.environ["CUDA_PATH"] == str(packages)


def test_an_older_toolkit_is_not_for_the_compiler_that_tvm_is_linked_with(
    packages, monkeypatch, toolkit
) -> None:
    load, _ = loader(cuda.DRIVER, cuda.RUNTIME, cuda.COMPILER)
    toolkit("#define CUDA_VERSION 13000")
    cuda.use(load)
    assert "CUDA_PATH" not in os.environ
    toolkit("#define CUDA_VERSION 12040")
    cuda.use(load)
    assert os.environ["CUDA_PATH"] == str(packages)


def test_what_the_system_has_stays(packages, monkeypatch) -> None:
    there = [cuda.DRIVER, cuda.RUNTIME, "libnvrtc.so.13"]
    load, loaded = loader(*there)
    monkeypatch.setattr(cuda, "_toolkit", lambda: True)
    cuda.use(load)
    assert loaded == there
    assert "CUDA_PATH" not in os.environ and os.environ["LD_LIBRARY_PATH"] == "/opt/other"
    monkeypatch.setattr(cuda, "_toolkit", lambda: False)
    monkeypatch.setenv("CUDA_PATH", "/opt/cuda")  # told by the user
    cuda.use(load)
    assert os.environ["CUDA_PATH"] == "/opt/cuda"


def test_libraries_that_pytorch_has_loaded_here_are_found_by_children_without_it(
    packages, monkeypatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", object())
    load, _ = loader(cuda.DRIVER, cuda.RUNTIME, cuda.COMPILER)
    cuda.use(load)
    assert os.environ["LD_LIBRARY_PATH"] == f"{packages / 'lib'}:/opt/other"
