"""The error of a text that cannot be one, wherever it is found."""


class BadTextError(Exception):
  """Says what is wrong with one record, without quoting it."""
