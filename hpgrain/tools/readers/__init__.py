"""Readers of raw text: one format a module, all of them yielding `Record`s."""
