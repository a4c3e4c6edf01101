"""Makes the default configuration, and checks the one a run was given.

  base_config()     every key with its default; a config file sets what differs
  parse_arg(arg)    the part after the colon of --config=configs/X.py:seed=1
  with_workdir      the same tree, {workdir} replaced in every path, checked
  check(config)     the same tree, completed, checked and frozen

`docs/config.md` is the table of all keys.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import ml_collections as mlc
from ml_collections import config_dict

from hpgrain import config_rules
from hpgrain.config_key import MAPPING, NAMES, PATHS, ROW_MAP, Key
from hpgrain.config_schema import BY_NAME, FOREIGN, KEYS, SECTIONS
from hpgrain.config_values import check_value
from hpgrain.data_paths import WORKDIR, read_entries
from hpgrain.nearest import did_you_mean, nearest

_BOOLS = {"true": True, "1": True, "false": False, "0": False}


def base_config() -> mlc.ConfigDict:
  """Returns every key with its default.

  Keys that may be unset are placeholders and sequences are tuples: flags can
  override these, but neither a bare None nor a list. The tree is locked, so
  that a misspelt key fails where it is set; `mesh` takes sizes of new axes.
  """
  config = mlc.ConfigDict(_nest({key.name: _default(key) for key in KEYS}))
  config.lock()
  config.mesh.unlock()
  return config


def _default(key: Key) -> Any:
  if key.kind in (PATHS, ROW_MAP, NAMES, MAPPING) or key.aliases:
    # Of type `object`, a flag's text is a string unless it is a literal: both
    # `=/data/books` and `="(0.7, '/data/books', ...)"` come through.
    return config_dict.FieldReference(key.default, field_type=object)
  if key.default is None:
    return config_dict.placeholder(key.kind)
  return key.default


def check(
  config: Mapping[str, Any] | mlc.ConfigDict,
  *,
  mesh_axes: Collection[str] | None = None,
) -> mlc.ConfigDict:
  """Returns `config` with defaults filled in, checked and frozen.

  `simple_blend=False` becomes "no", a set `drop_last` also sets `end_of_data`,
  keys whose unset value depends on others get it (`config_rules.completed`),
  and a data path other than a string becomes a tuple of `SourceEntry`. What
  this returns may be checked again.

  Args:
    config: keys left out have their defaults.
    mesh_axes: of a mesh that is there; `config.mesh` then need not describe
      one, and whoever has the mesh compares them.

  Raises:
    ValueError: a key that does not exist, a value of another type or outside
      what is allowed, or values that contradict each other.
  """
  given = dict(_leaves(config))
  values = {key.name: key.default for key in KEYS}
  for name in given.keys() & BY_NAME.keys():
    values[name] = _checked_value(BY_NAME[name], given[name])
  for name in given.keys() - BY_NAME.keys():
    # An axis of the mesh brings its own size key.
    axes = {*values["mesh.axes"], *(mesh_axes or ())}
    if name.removeprefix("mesh.") not in axes:
      raise ValueError(_unknown(name))
    values[name] = given[name]
  values |= config_rules.completed(mlc.FrozenConfigDict(_nest(values)))
  checked = mlc.FrozenConfigDict(_nest(values))
  config_rules.check_rules(checked, mesh_is_given=mesh_axes is not None)
  return checked


def with_workdir(config: mlc.ConfigDict, workdir: str | None) -> mlc.ConfigDict:
  """Returns the checked config, with {workdir} replaced in every path.

  Raises:
    ValueError: for a config that is not right, or needs a workdir and has
      none.
  """

  def replace(value: Any) -> Any:
    if isinstance(value, str) and WORKDIR in value:
      if workdir is None:
        raise ValueError(
          f"The config has files in the run's folder ({value}): give the run's"
          " --workdir=DIR."
        )
      return value.replace(WORKDIR, workdir)
    if isinstance(value, (list, tuple)):
      return type(value)(map(replace, value))
    if isinstance(value, (dict, mlc.ConfigDict)):
      return {key: replace(value[key]) for key in value}
    return value

  return check(mlc.ConfigDict(replace(config)))


def _leaves(
  section: Mapping[str, Any] | mlc.ConfigDict, prefix: str = ""
) -> Iterator[tuple[str, Any]]:
  if not isinstance(section, (Mapping, mlc.ConfigDict)):
    raise ValueError(
      f"{prefix[:-1] or 'The configuration'} must be a section of keys, got"
      f" {section!r}."
    )
  for name in section:
    if prefix + name in SECTIONS:
      yield from _leaves(section[name], f"{prefix}{name}.")
    else:
      yield prefix + name, section[name]


def _checked_value(key: Key, value: Any) -> Any:
  if key.kind == PATHS:
    if value is None or isinstance(value, str):
      return value
    return tuple(read_entries(value, key=key.name, noun="path"))
  return check_value(key, value)


def _unknown(name: str) -> str:
  section, _, leaf = name.rpartition(".")
  if leaf in FOREIGN:
    return f"{name} is no configuration key here: {FOREIGN[leaf]}."
  full_names = {full.rsplit(".", 1)[-1]: full for full in (*BY_NAME, *SECTIONS)}
  siblings = [
    full.rsplit(".", 1)[-1]
    for full in (*BY_NAME, *SECTIONS)
    if full.rpartition(".")[0] == section
  ]
  prefix = f"{section}." if section else ""
  if leaf in full_names:
    hint = f" Did you mean {full_names[leaf]!r}?"
  elif found := nearest(leaf, siblings):
    hint = f" Did you mean {prefix + found!r}?"
  elif found := nearest(leaf, full_names):
    hint = f" Did you mean {full_names[found]!r}?"
  else:
    hint = ""
  return (
    f"{name} is no configuration key.{hint} There are:"
    f" {', '.join(prefix + sibling for sibling in sorted(siblings))}."
  )


def _nest(values: Mapping[str, Any]) -> dict[str, Any]:
  tree: dict[str, Any] = {}
  for name, value in values.items():
    *sections, leaf = name.split(".")
    section = tree
    for part in sections:
      section = section.setdefault(part, {})
    section[leaf] = value
  return tree


def parse_arg(arg: str | None, **defaults: Any) -> mlc.ConfigDict:
  """Reads `arg`, such as "seq_length=512,runlocal", over `defaults`.

  A name takes a value of its default's type (int, float, str or bool); the
  bare name of a bool is True.

  Raises:
    ValueError: a name that has no default, one that is given twice, or a value
      that cannot be read.
  """
  values = dict(defaults)
  seen = set()
  for part in arg.split(",") if arg else ():
    name, equals, text = (piece.strip() for piece in part.partition("="))
    if name not in defaults:
      raise ValueError(
        f"The config has no argument {name!r}.{did_you_mean(name, defaults)}"
        f" It has: {', '.join(defaults) or 'none'}."
      )
    if name in seen:
      raise ValueError(f"The config's argument {name!r} is given twice: {arg}.")
    seen.add(name)
    kind = type(defaults[name])
    try:
      if kind is bool:
        values[name] = _BOOLS[text.lower()] if equals else True
      elif not equals:
        raise ValueError
      else:
        values[name] = kind(text)
    except (KeyError, ValueError):
      raise ValueError(
        f"The config's argument {name!r} is of type {kind.__name__}, got"
        f" {part!r}. Write {name}={defaults[name]}."
      ) from None
  return mlc.ConfigDict(values)
