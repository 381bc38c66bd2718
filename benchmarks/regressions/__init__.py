"""What a change must not spoil: the start, candidates a second, golden scores, the suite's time."""
