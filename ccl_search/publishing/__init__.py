"""Publishing a search: a self-contained folder with the policy, every trial as a benchmark entry, and its evidence."""
