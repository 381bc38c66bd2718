"""Cache of state embeddings on disk, by encoder and text. Plain npz arrays, no pickle."""

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

TEXTS_PER_WRITE = 4096  # a kill loses at most so many embeddings


def content_hash(text: str) -> str:
    """Return the key of a text in the cache."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class EmbeddingCache:
    """Embeddings of one encoder by content hash.

    Parameters
    ----------
    encoder : a frozen encoder; its fingerprint names the file, so another encoder never reads it
    precision : as in :meth:`wmsched.model.encoder.StateEncoder.encode`
    directory : folder of ``<fingerprint>-<precision>.npz``; None or a read-only folder: memory only
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
                self.rows = {}  # it is only a cache: the next write replaces the damaged file

    def add(self, texts: Iterable[str]) -> None:
        """Embed missing texts and write to disk after every `TEXTS_PER_WRITE`."""
        missing = {content_hash(text): text for text in texts}
        todo = [(key, text) for key, text in sorted(missing.items()) if key not in self.rows]
        for begin in range(0, len(todo), TEXTS_PER_WRITE):
            slab = todo[begin : begin + TEXTS_PER_WRITE]
            vectors = self.encoder.encode([text for _, text in slab], precision=self.precision)
            self.rows.update(zip((key for key, _ in slab), vectors))
            if self.path is not None and not try_write(self.path, self._write):
                self.path = None  # warns once

    def __getitem__(self, text: str) -> np.ndarray:
        """Return the embedding [d] of a text; a new text is encoded now."""
        key = content_hash(text)
        if key not in self.rows:
            self.add([text])
        return self.rows[key]

    def _write(self, file: IO[bytes]) -> None:
        keys = sorted(self.rows)
        np.savez(file, keys=np.array(keys, dtype="U32"), vectors=np.stack([self.rows[key] for key in keys]))
