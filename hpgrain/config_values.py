"""Checks one configuration value against its line of the schema."""

import numbers
from collections.abc import Mapping
from typing import Any

import ml_collections as mlc
import numpy as np

from hpgrain.config_key import (
  MAPPING,
  NAMES,
  NUMBERS,
  PATHS,
  ROW_MAP,
  Key,
)
from hpgrain.nearest import did_you_mean


def check_value(key: Key, value: Any) -> Any:
  """Returns `value` as `key` has it.

  Aliases are resolved, a list is made a tuple and a NumPy number Python's.

  Raises:
    ValueError: the value is of another type or is not allowed.
  """
  if value is None and key.default is None:
    return None
  for alias, meant in key.aliases.items():
    if type(value) is type(alias) and value == alias:
      return meant
  sequences = (tuple, ROW_MAP, NAMES, NUMBERS)
  if key.kind in sequences and isinstance(value, (list, np.ndarray)):
    value = tuple(value.tolist() if isinstance(value, np.ndarray) else value)
  if key.default is None and key.kind is str and value == "None":
    raise ValueError(
      f"{key.name} is the text 'None'. A flag cannot unset it: leave the flag"
      " out where a key is to stay unset, or set it to None in the config file."
    )
  if not _is_of_kind(value, key.kind):
    raise ValueError(f"{key.name} must be {describe(key)}, got {value!r}.")
  if key.kind == MAPPING:
    return value
  if value in key.refused:
    raise ValueError(
      f"{key.name}={value!r} is refused: {key.refused[value]}. It must be"
      f" {describe(key)}."
    )
  numbers_of = value if key.kind == NUMBERS else (value,)
  too_low = key.minimum is not None and not all(
    number >= key.minimum for number in numbers_of
  )
  too_high = key.maximum is not None and not all(
    number <= key.maximum for number in numbers_of
  )
  if too_low or too_high or (key.legal and value not in key.legal):
    raise ValueError(
      f"{key.name} must be {describe(key)}, got {value!r}."
      f"{did_you_mean(value, key.legal)}"
    )
  if key.kind == NUMBERS:
    return tuple(map(int, value))
  return key.kind(value) if key.kind in (int, float) else value


def describe(key: Key) -> str:
  """Returns in words what the value of `key` may be."""
  if key.legal:
    words = " or ".join(f"{value!r}" for value in key.legal)
    words += "".join(
      f" (also {alias!r} for {meant!r})" for alias, meant in key.aliases.items()
    )
  else:
    words = {
      int: "an int",
      float: "a number",
      str: "a string",
      bool: "True or False",
      tuple: "a tuple of names",
      PATHS: "a data path",
      ROW_MAP: "a file's path or a tuple of integers",
      NAMES: "a name or a tuple of names",
      NUMBERS: "a tuple of integers",
      MAPPING: "a mapping",
    }[key.kind]
  if key.minimum is not None:
    words += (
      f"{', each' if key.kind == NUMBERS else ''} of at least {key.minimum}"
    )
  if key.maximum is not None:
    words += f"{' and' if key.minimum is not None else ' of'} at most"
    words += f" {key.maximum}"
  return words


def _is_of_kind(value: Any, kind: type | str) -> bool:
  if kind in (int, float):
    number = numbers.Integral if kind is int else numbers.Real
    return isinstance(value, number) and not isinstance(value, bool)
  if kind == NAMES and isinstance(value, str):
    return True
  if kind in (tuple, NAMES):
    return isinstance(value, tuple) and all(isinstance(v, str) for v in value)
  if kind == NUMBERS:
    return isinstance(value, tuple) and all(_is_of_kind(v, int) for v in value)
  if kind == MAPPING:
    return isinstance(value, (Mapping, mlc.ConfigDict)) and all(
      isinstance(name, str) for name in value
    )
  if kind == ROW_MAP:
    return isinstance(value, str) or (
      isinstance(value, tuple)
      and all(_is_of_kind(number, int) for number in value)
    )
  return isinstance(value, kind)
