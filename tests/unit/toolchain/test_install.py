"""`wmsched setup-tvm --folder` replaces nothing but what it has made."""

import pytest

from wmsched.base.errors import EnvironmentProblem
from wmsched.toolchain import install


@pytest.fixture
def pip(monkeypatch):
    """A pip that puts an empty TVM where it is told to; the commands it was given."""
    commands = []

    def run(command, **_):
        commands.append(command)
        package = install.Path(command[command.index("--target") + 1]) / "tvm" / "auto_scheduler"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        return install.subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(install.subprocess, "run", run)
    return commands


def test_a_folder_with_other_things_is_left_alone(tmp_path, pip) -> None:
    mine = tmp_path / "src"
    (mine / "tvm").mkdir(parents=True)
    (mine / "thesis.tex").write_text("years of work")
    with pytest.raises(EnvironmentProblem, match=r"src is there and holds other things.*does not exist yet"):
        install.install(mine)
    with pytest.raises(EnvironmentProblem, match="other things"):
        install.install(mine / "thesis.tex")
    assert (mine / "thesis.tex").read_text() == "years of work" and not pip


def test_an_empty_folder_and_an_older_install_are_replaced(tmp_path, pip) -> None:
    folder = tmp_path / "tvm"
    folder.mkdir()
    assert install.install(folder) == (folder, True)
    assert install.install(folder) == (folder, False) and len(pip) == 1
    (folder / "tvm" / "auto_scheduler" / "__init__.py").unlink()  # half removed
    assert install.install(folder) == (folder, True) and len(pip) == 2


def test_the_folder_that_one_stands_in_has_a_name(tmp_path, pip, monkeypatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert install.install(install.Path()) == (tmp_path / "here", True)
