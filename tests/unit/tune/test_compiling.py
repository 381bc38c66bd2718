"""The process that `wmsched.compile` searches in: what it says, how it ends, interrupts."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from wmsched.base.errors import WmschedError
from wmsched.base.files import locked
from wmsched.tune import compile


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_what_it_says_is_shown(capsys) -> None:
    compile._run(python("import sys; print('one'); print('two', file=sys.stderr)"), Path("out"))
    assert sorted(capsys.readouterr().out.split()) == ["one", "two"]


def test_a_failure_has_its_last_lines_and_the_folder(capsys) -> None:
    code = "import sys; [print(k) for k in range(99)]; sys.exit('wmsched: no such input')"
    with pytest.raises(WmschedError, match=r"(?s)exit status 1: .*no such input.*folder: out$") as caught:
        compile._run(python(code), Path("out"))
    assert "98" in str(caught.value) and "\n42\n" not in str(caught.value)
    assert "\n42\n" in capsys.readouterr().out


def test_an_interrupted_search_is_an_interrupt_here(capsys) -> None:
    with pytest.raises(KeyboardInterrupt):
        compile._run(python("raise SystemExit(130)"), Path("out"))


@pytest.fixture
def heard():
    """SIGINT as a terminal has it: a shell that runs the tests in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def run_and_interrupt(code: str, capsys) -> None:
    """Run a search that says "ready", with a signal for this process alone when it has."""

    def interrupt() -> None:
        while "ready" not in capsys.readouterr().out:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        compile._run(python(code), Path("out"))
    thread.join()


def test_a_signal_for_this_process_alone_is_passed_on(heard, monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(compile, "PATIENCE", 0.2)
    left = tmp_path / "left"
    code = f"""
import pathlib, time
print("ready", flush=True)
try:
    time.sleep(300)
except KeyboardInterrupt:
    pathlib.Path({str(left)!r}).touch()
"""

    run_and_interrupt(code, capsys)
    assert left.exists()


def test_a_search_that_ends_with_much_to_say_is_heard_out(heard, monkeypatch, tmp_path, capsys) -> None:
    """Unread, a pipe holds up what writes into it."""
    monkeypatch.setattr(compile, "PATIENCE", 0.2)
    code = """
import time
print("ready", flush=True)
try:
    time.sleep(300)
except KeyboardInterrupt:
    print("stopped " * 50_000)
    raise SystemExit(130)
"""
    run_and_interrupt(code, capsys)
    assert capsys.readouterr().out.count("stopped") == 50_000


def test_two_in_one_folder_do_not_tune_each_others_model(tmp_path) -> None:
    import torch

    with (
        locked(tmp_path / f".{compile.PROGRAM}.lock", whose=tmp_path, option="out="),
        pytest.raises(WmschedError, match="another run is writing"),
    ):
        compile.compile_model(torch.nn.Linear(2, 2).eval(), (torch.ones(1, 2),), out=tmp_path)
    assert list(tmp_path.glob("*.pt2")) == []


def test_a_folder_of_its_own_is_not_said_to_be_one_to_load(monkeypatch, tmp_path) -> None:
    commands = []

    def ended(command, folder) -> None:
        commands.append(command)
        raise WmschedError("ended")

    monkeypatch.setattr(compile, "_run", ended)
    for out in (None, tmp_path):
        with pytest.raises(WmschedError, match="ended"):
            compile.compile_model("model.onnx", out=out)
    assert ["--no-how-to-run" in command for command in commands] == [True, False]
