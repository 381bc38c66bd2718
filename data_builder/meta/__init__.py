"""MetaSchedule's side of the dataset builder: its databases read, replayed and collected."""
