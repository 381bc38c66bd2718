"""Packaging of wmsched: the cost model, the dataset builder and the benchmarks."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent
INIT = (HERE / "wmsched" / "__init__.py").read_text(encoding="utf-8")
VERSION = re.search(r'__version__ = "(.+)"', INIT).group(1)
PACKAGES = ("wmsched", "data_builder", "benchmarks")
META = ["apache-tvm==0.27.0.post1", "apache-tvm-ffi==0.1.14.post0", "onnx>=1.17"]
CUDA = ["cuda-bindings>=13,<14", "nvidia-cuda-nvrtc>=13,<14", "nvidia-cuda-runtime>=13,<14"]
BENCH = ["matplotlib>=3.8", "pandas>=2.2"]
DASK = ["distributed>=2024.1"]
ONNXRUNTIME = ["onnxruntime>=1.20"]
RUNTIMES = [*ONNXRUNTIME, "onnxscript>=0.7", "openvino>=2025.0"]
TESTS = ["hypothesis>=6", "pytest>=8", "pytest-benchmark>=5", "pytest-xdist>=3"]
DOCS = ["furo>=2025.12", "myst-parser>=5", "sphinx>=9"]
DEV = [*TESTS, "import-linter>=2", "mypy>=1.11", "ruff>=0.6"]

setup(
    name="wmsched",
    version=VERSION,
    description="A learned cost model for TVM's schedule search: a state encoder, a transition and a ranker",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11",
    packages=find_packages(include=[f"{name}{rest}" for name in PACKAGES for rest in ("", ".*")]),
    package_data={
        "wmsched": [
            "metaschedule/native/*",
            "measure/*.cc",
            "model/trees/*.cc",
            "relax/attention/*.cuh",
            "report/page.*",
            "toolchain/*.cc",
            "toolchain/*.h",
            "bundles/**",
            "zoo/*.gz",
            "zoo/*.json",
        ],
        "benchmarks": ["outcomes/*.json"],
        "data_builder": ["samples/**"],
    },
    install_requires=[
        "attrs",  # this and the next seven: what AutoScheduler's TVM imports, the last three of them relay
        "cloudpickle",
        "decorator",
        "psutil",
        "tornado",
        "pytest>=8",
        "tflite",
        "tqdm",
        "numpy>=1.26",
        "orjson>=3.9",
        "pyarrow>=15",
        "rich>=13",
        "safetensors>=0.4",
        "scipy>=1.11",
        "tokenizers>=0.20",
        "torch>=2.5,<3",
        "transformers>=4.45,<6",
        "typer>=0.12",
        "xgboost>=3.1,<4",
    ],
    extras_require={
        "bench": BENCH,
        "cuda": [*META, *CUDA],
        "dask": DASK,
        "dev": DEV,
        "docs": DOCS,
        "meta": META,
        "onnxruntime": ONNXRUNTIME,
        "runtimes": RUNTIMES,
    },
    entry_points={
        "console_scripts": [
            "wmsched = wmsched.cli.main:main",
            "wmsched-data = data_builder.cli.main:main",
        ],
        "wmsched.rankers": [  # kinds of G beside the trees: wmsched.model.ranker_kinds
            "attention = benchmarks.rankers.kinds:ATTENTION",
            "latent = benchmarks.rankers.kinds:LATENT",
        ],
    },
    classifiers=[
        "Programming Language :: Python :: 3",
        "Operating System :: POSIX :: Linux",
        "Topic :: Software Development :: Compilers",
    ],
)
