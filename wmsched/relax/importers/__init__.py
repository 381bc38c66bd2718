"""Models from files: ONNX and torch.export, made Relax, or refused by name."""

__all__: list[str] = []
