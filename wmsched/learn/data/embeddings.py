"""State embeddings on disk: each text once for each encoder. Plain npz arrays, no pickle."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from wmsched.base.files import try_write

if TYPE_CHECKING:
    from wmsched.model.encoder import StateEncoder

SLAB = 4096  # texts encoded between two writes: what a kill can cost


def content_hash(text: str) -> str:
    """Return the key of a text in the cache."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class EmbeddingCache:
    """Embeddings by content hash, for one encoder.

    Parameters
    ----------
    encoder : a frozen encoder; its fingerprint names the file, so another encoder never reads these rows
    precision : as in :meth:`wmsched.model.encoder.StateEncoder.encode`
    directory : where ``<fingerprint>-<precision>.npz`` lies; None, or one that cannot be written, keeps the
        embeddings in memory only
    """

    def __init__(
        self, encoder: StateEncoder, directory: str | Path | None = None, *, precision: str = "float32"
    ) -> None:
        self.encoder, self.precision = encoder, precision
        self.path = (
            None if directory is None else Path(directory) / f"{encoder.fingerprint()}-{precision}.npz"
        )
        self.rows: dict[str, np.ndarray] = {}
        if self.path is not None and self.path.is_file():
            try:
                with np.load(self.path, allow_pickle=False) as file:
                    self.rows = dict(zip(file["keys"].tolist(), file["vectors"]))
            except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
                self.rows = {}  # a cache may be thrown away; the next write replaces the damaged file

    def add(self, texts: Iterable[str]) -> None:
        """Embed the texts that are not there yet, writing to disk after each slab."""
        missing = {content_hash(text): text for text in texts}
        todo = [(key, text) for key, text in sorted(missing.items()) if key not in self.rows]
        for begin in range(0, len(todo), SLAB):
            slab = todo[begin : begin + SLAB]
            vectors = self.encoder.encode([text for _, text in slab], precision=self.precision)
            self.rows.update(zip((key for key, _ in slab), vectors))
            if self.path is not None and not try_write(self.path, self._write):
                self.path = None  # told once

    def __getitem__(self, text: str) -> np.ndarray:
        """Return the embedding [d] of a text, encoding it now where it is new."""
        key = content_hash(text)
        if key not in self.rows:
            self.add([text])
        return self.rows[key]

    def _write(self, file: IO[bytes]) -> None:
        keys = sorted(self.rows)
        np.savez(file, keys=np.array(keys, dtype="U32"), vectors=np.stack([self.rows[key] for key in keys]))
