r"""A record in, its text out: a field, the first of several, or a template.

  text_keys "text"                       {"text": "a"}            -> "a"
  text_keys ["body", "text"]             {"text": "a"}            -> "a"
  template "{question}\n{answer}"        {"question": "a", ..}    -> "a\nb"

A template is a format string that names fields and nothing else: it holds no
code, and what it needs is known before a record is read.
"""

import string
from collections.abc import Callable, Sequence
from typing import Any

from hpgrain.transforms.transform import Record


def text_reader(
  text_keys: str | Sequence[str] | None, template: str | None
) -> Callable[[Record], str]:
  """The function that takes a record's text.

  It raises a ValueError without the record's place where the text is missing
  or is no string.

  Args:
    text_keys: a field, or several of which the first that a record has is
      taken (a value of None counts as missing, since tables fill with it).
    template: a format string over fields instead, all of which must be there.

  Raises:
    ValueError: none or both are given, or one is not as it must be.
  """
  if (text_keys is None) == (template is None):
    raise ValueError(
      "data_transform.text_keys and data_transform.template exclude each"
      f" other, got {text_keys!r} and {template!r}. Set one of them."
    )
  if template is not None:
    names = template_fields(template)
    return lambda record: template.format_map(
      {name: _string(record, name) for name in names}
    )
  keys = text_keys_of(text_keys)
  if len(keys) == 1:
    only = keys[0]
    return lambda record: _string(record, only)

  def read(record: Record) -> str:
    for key in keys:
      if record.get(key) is not None:
        return _string(record, key)
    raise ValueError(
      f"it has none of the fields {', '.join(map(repr, keys))}, only"
      f" {_names(record)}. Set data_transform.text_keys to the text's field."
    )

  return read


def text_keys_of(text_keys: str | Sequence[str] | None) -> tuple[str, ...]:
  """The keys as a tuple.

  Raises:
    ValueError: there is none, or one is no string.
  """
  keys = (text_keys,) if isinstance(text_keys, str) else tuple(text_keys or ())
  if not keys or not all(isinstance(key, str) and key for key in keys):
    raise ValueError(
      "data_transform.text_keys must be a field's name or several, got"
      f" {text_keys!r}."
    )
  return keys


def template_fields(template: str) -> tuple[str, ...]:
  """The fields that a template names.

  Raises:
    ValueError: it is no format string, names no field, or does more with one
      than put it in.
  """
  try:
    parts = list(string.Formatter().parse(template))
  except ValueError as error:
    raise ValueError(
      f"data_transform.template is no format string ({error}). Write"
      " '{question}\\n{answer}', and '{{' for a brace."
    ) from None
  fields = [part for part in parts if part[1] is not None]
  for _, name, form, conversion in fields:
    if form or conversion or not name or set(name) & set(".[]") or _digit(name):
      raise ValueError(
        f"data_transform.template may only name fields, as in '{{text}}', got"
        f" {name!r} with format {form!r}. Write '{{{{' for a brace."
      )
  if not fields:
    raise ValueError(
      "data_transform.template names no field, so every record would give the"
      " same text. Write '{question}\\n{answer}'."
    )
  return tuple(dict.fromkeys(name for _, name, _, _ in fields))


def _digit(name: str) -> bool:
  return name.isdigit()


def _string(record: Record, key: str) -> str:
  value: Any = record.get(key)
  if isinstance(value, str):
    return value
  if key in record:
    raise ValueError(
      f"its field {key!r} must be a string, got {type(value).__name__}."
    )
  raise ValueError(
    f"it has no field {key!r}, only {_names(record)}. Set"
    " data_transform.text_keys, or mend the record."
  )


def _names(record: Record) -> str:
  names = sorted(map(str, record))
  shown = ", ".join(repr(name[:40]) for name in names[:8])
  return shown + (", ..." if len(names) > 8 else "") if names else "no field"
