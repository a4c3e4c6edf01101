"""Programs that prepare corpora and look at them, each run by name."""
