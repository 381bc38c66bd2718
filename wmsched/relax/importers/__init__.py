"""Importers of ONNX files and torch.export programs into Relax."""

__all__: list[str] = []
