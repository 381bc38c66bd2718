"""States of models: inputs that the next call takes from this call's outputs, such as a decoder's cache."""

__all__: list[str] = []
