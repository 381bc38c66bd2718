"""From tuning logs to trajectories: parse, replay, collect, measure. Imports `wmsched`; never the reverse."""
