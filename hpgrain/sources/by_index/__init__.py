"""Sources whose records are read by number; see `formats.open_records`."""
