"""What a model returns, written down and put together again, in this process and in one that knows less."""

from __future__ import annotations

import subprocess
import sys
from collections import namedtuple
from typing import Any

import pytest
import torch

from wmsched.base import pytree
from wmsched.base.errors import WmschedError

Pair = namedtuple("Pair", "first second")  # PyTorch is not told how one of this type is written


class Returning(torch.nn.Module):
    def __init__(self, made: Any) -> None:
        super().__init__()
        self.made = made

    def forward(self, x):
        return self.made(x)


def exported(made: Any) -> Any:
    with torch.inference_mode():
        return torch.export.export(Returning(made), (torch.ones(2),))


def structure(made: Any) -> str:
    return pytree.structure(exported(made))


@pytest.mark.parametrize("made", [lambda x: x + 1, lambda x: (x + 1, x + 2)])
def test_a_tensor_and_a_tuple_of_several_are_nothing_to_write_down(made) -> None:
    assert structure(made) == ""


@pytest.mark.parametrize(
    "made",
    [
        lambda x: {"logits": x + 1},
        lambda x: (x + 1,),
        lambda x: [x + 1, x + 2],
        lambda x: (x + 1, None, {"more": [x + 2], "scale": 2}),
        lambda x: (x + 1, (x + 2, x + 3)),
    ],
)
def test_the_same_comes_back(made) -> None:
    data = torch.ones(2)
    tensors = [leaf for leaf in torch.utils._pytree.tree_leaves(made(data)) if isinstance(leaf, torch.Tensor)]
    found = pytree.rebuild(pytree.read(structure(made)), tensors)
    assert str(found) == str(made(data))


def test_other_tensors_than_there_were_are_an_error() -> None:
    with pytest.raises(WmschedError, match="1 tensors came out, where the model returns 2"):
        pytree.rebuild(pytree.read(structure(lambda x: [x + 1, x + 2])), [torch.ones(2)])


def test_what_cannot_be_written_down_is_left_out() -> None:
    assert structure(lambda x: Pair(x + 1, x + 2)) == ""


def test_the_module_of_a_type_is_imported() -> None:
    from transformers.modeling_outputs import BaseModelOutput

    written = structure(lambda x: BaseModelOutput(last_hidden_state=x + 1))
    program = (
        "import sys; from wmsched.base import pytree; assert 'transformers' not in sys.modules\n"
        f"found = pytree.rebuild(pytree.read({written!r}), [7])\n"
        "print(type(found).__module__, type(found).__name__, found.last_hidden_state)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["transformers.modeling_outputs", "BaseModelOutput", "7"]


def test_types_in_a_file_are_found(tmp_path) -> None:
    from transformers.modeling_outputs import BaseModelOutput

    path = tmp_path / "model.pt2"
    program = exported(lambda x: {"inner": [BaseModelOutput(last_hidden_state=x + 1)]})
    torch.export.save(program, path)
    found = pytree.types_in(path)
    assert {"builtins.dict", "builtins.list", "transformers.modeling_outputs.BaseModelOutput"} <= found
    pytree.import_types(found)


@pytest.mark.parametrize("content", [None, b"", b"no archive"])
def test_in_what_is_no_program_no_types_are_found(content, tmp_path) -> None:
    path = tmp_path / "model.pt2"
    if content is not None:
        path.write_bytes(content)
    assert pytree.types_in(path) == set()


def test_a_type_that_is_not_installed_is_named() -> None:
    with pytest.raises(WmschedError, match=r"a nowhere\.to_be\.Found, and nowhere\.to_be cannot be imported"):
        pytree.import_types(["builtins.tuple", "nowhere.to_be.Found"])
