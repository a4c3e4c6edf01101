"""Records in, examples of token ids out, while training."""
