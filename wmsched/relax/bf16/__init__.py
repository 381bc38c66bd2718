"""Float models with products in bfloat16: operands of 16 bits, sums and all that is between in float32."""

__all__: list[str] = []
