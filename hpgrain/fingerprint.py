"""What decides the rows of a run, as a short digest for each named part.

The digests travel in the state; the full list stands in `data_manifest.json`
beside it, so that a mismatch can say what was and what is. Process count,
mesh, batch size, prefetch, paths and run length are no part of it: they may
differ between a run and the run that goes on with it.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from hpgrain.fields import FieldOptions

# identity key -> part. Whatever is not named here belongs to "data".
_PART_OF = {
  "weights": "weights",
  "simple_blend": "weights",
  "order": "order",
  "shuffle": "order",
  "shuffle_buffer_size": "order",
  "drop_last": "order",
  "data_sharding": "order",
  "data_rearrange_map": "order",
  "num_samples": "order",
  "sampler": "order",
  "sampler_seed": "order",
  "sampler_wraps": "order",
  "seed": "seed",
  "seq_length": "seq_length",
  "add_extra_token": "seq_length",
  "split": "split",
  "split_index": "split",
}

# The mappings in the identity of packed rows that make up their part.
_PACKING = ("packing", "balance")

# What sets them, where it has another name.
_KEYS = {"num_samples": "num_samples (training.train_samples)"}

# Of a part that differs, so many of its values are told.
_MOST_TOLD = 8

_ADVICE = {
  "data": "the data, their names, or what is made of them",
  "weights": "the blend",
  "order": "the order of rows",
  "seed": "training.seed",
  "seq_length": "seq_length, the token budget or the extra token",
  "split": "the split",
  "labels": "how labels are made",
  "masks": "position or attention resets",
  "packing": "how examples are packed into rows, and for how many epochs",
}


def parts(
  identity: Mapping[str, Any], options: FieldOptions
) -> dict[str, dict[str, Any]]:
  """Groups everything that decides a batch's content by named part.

  A part that nothing belongs to is left out.

  Args:
    identity: `unique_identifiers` of the samples.
    options: how the fields are made.
  """
  grouped: dict[str, dict[str, Any]] = {name: {} for name in _ADVICE}
  for key, value in identity.items():
    if key in _PACKING:
      grouped["packing"].update(value)
    else:
      grouped[_PART_OF.get(key, "data")][key] = value
  fields = dataclasses.asdict(options)
  if not fields["eod_mask_loss"]:
    # An id that nothing uses decides nothing.
    del fields["eod_id"]
  # It adds a field, and changes no row.
  del fields["source_ids"]
  for key, value in fields.items():
    grouped["masks" if key.startswith("reset") else "labels"][key] = value
  return {name: part for name, part in grouped.items() if part}


def digests(grouped: Mapping[str, Any]) -> dict[str, str]:
  """Returns eight hexadecimal digits for each part."""
  return {
    name: hashlib.blake2b(
      json.dumps(part, sort_keys=True).encode(), digest_size=4
    ).hexdigest()
    for name, part in grouped.items()
  }


def check(
  saved: Mapping[str, str],
  current: Mapping[str, Any],
  saved_parts: Mapping[str, Any] | None = None,
) -> None:
  """Compares a saved fingerprint with the current pipeline's.

  Args:
    saved: digests from a state.
    current: the current parts, from `parts`.
    saved_parts: the saved run's parts where its data_manifest.json is there.

  Raises:
    ValueError: naming each part that differs and, with saved_parts, what it
      was and is.
  """
  now = digests(current)
  if not isinstance(saved, Mapping):
    raise ValueError(
      f"A state's fingerprint is a mapping of parts, got {saved!r}."
    )
  different = [
    name
    for name in sorted(now.keys() | saved.keys())
    if now.get(name) != saved.get(name)
  ]
  if not different:
    return
  lines = []
  for name in different:
    line = f"  {name} ({_ADVICE.get(name, 'unknown to this version')})"
    if saved_parts is not None and name in saved_parts and name in current:
      was, now_is = _flat(saved_parts[name]), _flat(current[name])
      unlike = [
        key
        for key in dict.fromkeys((*was, *now_is))
        if was.get(key) != now_is.get(key)
      ]
      for key in unlike[:_MOST_TOLD]:
        line += (
          f"\n    {_KEYS.get(key, key)}: saved {_short(was.get(key))}, now"
          f" {_short(now_is.get(key))}"
        )
      if len(unlike) > _MOST_TOLD:
        line += f"\n    ... and {len(unlike) - _MOST_TOLD} more"
    lines.append(line)
  raise ValueError(
    "This state was saved by a pipeline that makes other rows. These parts"
    " differ:\n" + "\n".join(lines) + "\nRestore with the configuration and"
    " data of the saved run, or start a new run in another folder. (Process"
    " count, mesh, batch size, prefetch and folders may differ; a file of"
    " another name keeps its rows under the saved one, given as `name`.)"
  )


def _flat(value: Any, name: str = "") -> dict[str, Any]:
  """Returns what a tree of mappings and lists holds, by its place in it."""
  if isinstance(value, Mapping) and value:
    parts = {f"{name}.{key}" if name else key: v for key, v in value.items()}
  elif isinstance(value, (list, tuple)) and any(
    isinstance(item, (Mapping, list, tuple)) for item in value
  ):
    parts = {f"{name}[{i}]": item for i, item in enumerate(value)}
  else:
    return {name: value}
  return {
    k: v for key, part in parts.items() for k, v in _flat(part, key).items()
  }


def _short(value: Any) -> str:
  text = json.dumps(value)
  return text if len(text) <= 200 else text[:200] + "..."
