"""Signals that end a job: it ends as after Ctrl-C, with what lies in temporary folders removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import signal, sys, tempfile, time
from wmsched.base.interrupt import end_as_interrupted

signal.signal(signal.SIGINT, {sigint})
signal.signal(signal.SIGHUP, {sighup})
end_as_interrupted()
with tempfile.TemporaryDirectory(dir=sys.argv[1]):
    try:
        print("ready", flush=True)
        time.sleep(300)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        if {stays}:
            time.sleep(300)
"""


def started(folder: Path, *, sigint="signal.default_int_handler", sighup="signal.SIG_DFL", stays=False):
    code = CODE.format(sigint=sigint, sighup=sighup, stays=stays)
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_job_that_is_ended_ends_as_interrupted(tmp_path, number) -> None:
    process = started(tmp_path)
    process.send_signal(number)
    assert process.communicate(timeout=60)[0] == "interrupted\n" and process.returncode == 0
    assert os.listdir(tmp_path) == []


def test_a_second_signal_ends_it_at_once(tmp_path) -> None:
    process = started(tmp_path, stays=True)
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "interrupted\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM


def test_a_job_in_the_background_leaves_too(tmp_path) -> None:
    """A script's `command &` has Ctrl-C ignored."""
    process = started(tmp_path, sigint="signal.SIG_IGN")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM and os.listdir(tmp_path) == []


def test_what_nohup_has_ignored_stays_so(tmp_path) -> None:
    process = started(tmp_path, sighup="signal.SIG_IGN")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60)[0] == "interrupted\n"
