"""`wmsched train` (E, F, G) killed at random moments: the bundle is an undisturbed run's, byte for byte."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from killing import files, killed, timed
from toy_stored import write_toy

# The parts as small as they can be: half of the time goes to starting the process.
SMALL = """
import sys
from pathlib import Path
from wmsched.model.config import EncoderConfig
size = int(sys.argv[2])
from wmsched.model.ranker import RankerConfig
from wmsched.learn.training.train import TrainOptions, train
from wmsched.learn.training.train_encoder import EncoderTraining
from wmsched.learn.training.train_transition import TransitionTraining
encoder = EncoderConfig(vocab_size=400, hidden=16, layers=1, heads=2, feedforward=16, dim=8)
train(TrainOptions(
    dataset=Path(sys.argv[1]), out=Path("bundle"), encoder=encoder,
    encoder_training=EncoderTraining(
        steps=12 * size, epoch_steps=6 * size, checkpoint_steps=2, workloads_per_batch=3
    ),
    transition_training=TransitionTraining(steps=12 * size, epoch_steps=6 * size, checkpoint_steps=2),
    ranker=RankerConfig(rounds=8 * size), folds=3,
))
"""


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_a_training_killed_at_random_moments_makes_the_undisturbed_bundle(kills: int, tmp_path: Path) -> None:
    data = write_toy(tmp_path / "data")
    command = [sys.executable, "-c", SMALL, str(data), "1" if kills == 1 else "3"]
    once, often = tmp_path / "once", tmp_path / "often"
    once.mkdir()
    often.mkdir()
    seconds = timed(command, cwd=once)
    wanted = files(once / "bundle")
    assert {"ranker.ubj", "transition.safetensors", "config.json"} < set(wanted)

    def ended() -> None:
        assert files(often / "bundle") == wanted
        shutil.rmtree(often / "bundle")
        shutil.rmtree(often / "bundle.training")

    finished = killed(command, kills=kills, seconds=seconds, seed=kills, ended=ended, cwd=often)
    subprocess.run(command, check=True, capture_output=True, cwd=often)
    print(f"{kills} kills, {finished} runs that ended between them; an undisturbed one took {seconds:.0f} s")
    assert files(often / "bundle") == wanted
    # Beside it is what a run that nobody killed leaves, and nothing else.
    assert {path.name for path in often.iterdir()} == {"bundle", "bundle.training"}
    held = {name for name in files(often / "bundle.training") if not name.endswith(".npz")}
    assert held == {name for name in files(once / "bundle.training") if not name.endswith(".npz")}
