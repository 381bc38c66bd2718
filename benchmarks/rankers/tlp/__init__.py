"""TLP (Zhai et al., ASPLOS 2023), a cost model that reads primitives as a language, from its description.

Primitives become rows of numbers and a name (`sequence`), a small network with self-attention scores the
sequence (`model`), and a LambdaRank loss orders the programs of a workload (`loss`, `fit`). Neither a program
nor its features are looked at.
"""
