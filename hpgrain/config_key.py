"""What is known of one configuration key.

Key("num_streams", int, 64, "Streams ...", minimum=1, only="streams")
    name           kind default meaning     allowed    where it has a meaning
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

# What a value may be, beside Python's types:
# the form that `data_paths.py` reads,
PATHS = "paths"
# an order of rows, a file's path or a sequence of integers,
ROW_MAP = "row map"
# one name or several,
NAMES = "names"
# integers,
NUMBERS = "numbers"
# names and what they stand for.
MAPPING = "mapping"

INT32_MAX = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Key:
  """One configuration key.

  Attributes:
    name: where it stands, with dots; inside a `section` the last part only.
    kind: `int`, `float`, `str`, `bool`, `tuple` (of strings), or one of the
      words above.
    default: its value when nothing is said; None is unset.
    meaning: one line for people.
    legal: the values allowed, where they can be listed.
    minimum: the least value allowed.
    maximum: the greatest value allowed.
    refused: values other programs know, with why they cannot be had here.
    aliases: other ways to write a value.
    only: the use, of `config_uses.USES`, in which it has a meaning; set to
      something in another, it is an error.
  """

  name: str
  kind: type | str
  default: Any
  meaning: str
  legal: tuple[Any, ...] = ()
  minimum: int | float | None = None
  maximum: int | float | None = None
  refused: Mapping[Any, str] = dataclasses.field(default_factory=dict)
  aliases: Mapping[Any, Any] = dataclasses.field(default_factory=dict)
  only: str = ""


def section(name: str, *keys: Key, only: str = "") -> Iterator[Key]:
  """Yields keys with their section's name.

  Args:
    name: of the section.
    *keys: with the last part of their names alone.
    only: the use of those that say none themselves.
  """
  for key in keys:
    yield dataclasses.replace(
      key, name=f"{name}.{key.name}", only=key.only or only
    )
