"""What every program needs and no subject owns: errors, atomic files and locks, cores, memory, console."""

__all__: list[str] = []
