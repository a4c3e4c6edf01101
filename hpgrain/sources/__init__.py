"""Where tokens are read from: files in, token sequences out."""
