"""Methods that run in MetaSchedule."""
