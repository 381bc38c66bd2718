"""Table of PyTorch's operators: converters of ours, TVM's that err, and what is refused at sight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wmsched.relax.importers.aten import (
    convolution,
    elementwise,
    indexing,
    normalization,
    pooling,
    products,
    reductions,
    resize,
    scattering,
    sorting,
    special,
)
from wmsched.relax.importers.aten.node import Node

DOMAINS = ("aten", "prims", "torchvision", "higher_order", "transformers")
#: Converters by an operator's full name, such as ``aten.amax.default``.
OURS: dict[str, Callable[[Node], Any]] = {
    **convolution.CONVERTERS,
    **elementwise.CONVERTERS,
    **indexing.CONVERTERS,
    **normalization.CONVERTERS,
    **pooling.CONVERTERS,
    **products.CONVERTERS,
    **reductions.CONVERTERS,
    **resize.CONVERTERS,
    **scattering.CONVERTERS,
    **sorting.CONVERTERS,
    **special.CONVERTERS,
}
#: TVM's converters that give other values than PyTorch: PyTorch's own bodies of these are taken.
WRONG = ("grid_sampler_2d.default", "affine_grid_generator.default")
RANDOM = "it draws random numbers: export the model in its mode for inference, model.eval()"
DATA = "how many elements it finds hangs on data, and programs have fixed shapes"
SOLVER = "decompositions and solvers of matrices are not supported"
COMPLEX = "complex numbers are not supported"
SPARSE = "sparse tensors are not supported"
#: Why an operator is refused, by its name without the overload.
REFUSED: dict[str, str] = {
    **dict.fromkeys(
        (
            "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "native_dropout",
            "normal", "normal_functional", "poisson", "rand", "rand_like", "randint", "randint_like", "randn",
            "randn_like", "randperm", "rrelu_with_noise_functional", "uniform",
        ),
        RANDOM,
    ),
    **dict.fromkeys(
        ("argwhere", "bincount", "masked_select", "nonzero", "unique_consecutive", "unique_dim", "_unique2"),
        DATA,
    ),
    **dict.fromkeys(
        (
            "_linalg_det", "_linalg_eigh", "_linalg_eigvals", "_linalg_slogdet", "_linalg_solve_ex",
            "_linalg_svd", "cholesky", "cholesky_inverse", "cholesky_solve", "geqrf", "linalg_cholesky_ex",
            "linalg_eig", "linalg_householder_product", "linalg_inv_ex", "linalg_ldl_factor_ex",
            "linalg_ldl_solve", "linalg_lstsq", "linalg_lu", "linalg_lu_factor_ex", "linalg_lu_solve",
            "linalg_matrix_exp", "linalg_pinv", "linalg_qr", "linalg_solve_triangular", "lu_unpack", "ormqr",
            "triangular_solve",
        ),
        SOLVER,
    ),
    **dict.fromkeys(
        (
            "_conj", "_conj_physical", "_fft_c2c", "_fft_c2r", "_fft_r2c", "complex", "polar",
            "view_as_complex", "view_as_real",
        ),
        COMPLEX,
    ),
    **dict.fromkeys(("_sparse_mm_reduce_impl", "_to_sparse", "sparse_sampled_addmm"), SPARSE),
}  # fmt: skip
