"""Sources whose records are read one after the other; see `source.InTurn`."""
