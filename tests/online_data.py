"""Sources of records for the tests: drawn, written in any format, opened.

  SourceRecipe -> records -> files of a format, or memory -> by number / in turn

The same records come out of every format, so that which one it was decides
nothing. A format that cannot hold a record (lines of text hold no empty one)
is not drawn for it.
"""

import csv
import dataclasses
import gzip
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from reference_packers import IGNORE

Records = list[dict[str, Any]]

# Where records are by number; those in the second list only in turn.
FORMATS = ("json_lines", "json_array", "parquet", "arrow", "memory")
TEXT_FORMATS = ("text", "csv")
IN_TURN_FORMATS = ("json_lines_gz", "generator")
# Files of no record at all are refused: there is nothing to tell the format.
EMPTY_FORMATS = ("memory", "generator", "parquet")


@dataclasses.dataclass(frozen=True)
class SourceRecipe:
  """One source: which records it has, and how they are kept.

  `kind` is "plaintext" or "pretokenized"; `max_size` words or ids a record,
  some of which are three times as long; `num_files` at most.
  """

  kind: str
  seed: int
  records: int
  max_size: int = 8
  form: str = "memory"
  num_files: int = 1
  weight: float | None = None
  labels_are_shifted: bool = True


def draw_records(recipe: SourceRecipe) -> Records:
  """The records of a source, the same for the same recipe."""
  rng = random.Random(recipe.seed)
  draw = draw_text if recipe.kind == "plaintext" else draw_ids
  return [draw(rng, recipe) for _ in range(recipe.records)]


def draw_size(rng: random.Random, recipe: SourceRecipe) -> int:
  kind = rng.random()
  if kind < 0.15:
    return 0
  most = recipe.max_size * (3 if kind > 0.9 else 1)
  return rng.randint(1, most)


def draw_text(rng: random.Random, recipe: SourceRecipe) -> dict[str, Any]:
  words = [
    rng.choice(("a", "b", "e", f"w{rng.randint(8, 99)}", "strange"))
    for _ in range(draw_size(rng, recipe))
  ]
  if not words:
    # Lines of text skip those that hold nothing at all.
    return {"text": " " if recipe.form == "text" else rng.choice(("", " \t"))}
  return {"text": " ".join(words)}


def draw_ids(rng: random.Random, recipe: SourceRecipe) -> dict[str, Any]:
  """Ids, with labels, a loss mask, both or neither."""
  size = draw_size(rng, recipe)
  ids = [rng.randrange(100) for _ in range(size)]
  labels = mask = None
  kind = rng.randrange(4)
  if kind & 1:
    targets = [*ids[1:], rng.randrange(100)]
    if not recipe.labels_are_shifted:
      targets = ids
    learnt = rng.random() < 0.9
    labels = [
      target if learnt and rng.random() < 0.7 else IGNORE
      for target in targets[:size]
    ]
  if kind & 2:
    mask = [rng.choice((0, 1, 1, 0.5, 2)) for _ in range(size)]
  return {"input_ids": ids, "labels": labels, "loss_mask": mask}


# Keeping them.


def write(records: Records, recipe: SourceRecipe, folder: Path) -> list[str]:
  """Writes files of the recipe's format; returns their paths."""
  folder.mkdir(parents=True, exist_ok=True)
  count = max(1, min(recipe.num_files, len(records)))
  bounds = [len(records) * i // count for i in range(count + 1)]
  suffix, write_one = _WRITERS[recipe.form]
  paths = []
  for i in range(count):
    path = folder / f"part{i}{suffix}"
    write_one(path, records[bounds[i] : bounds[i + 1]], recipe)
    paths.append(str(path))
  return paths


def _lines(records: Records) -> str:
  return "".join(json.dumps(record) + "\n" for record in records)


def _write_lines(path: Path, records: Records, recipe: SourceRecipe) -> None:
  del recipe
  path.write_text(_lines(records))


def _write_gz(path: Path, records: Records, recipe: SourceRecipe) -> None:
  del recipe
  # Without the time, so that written again they are the same data.
  path.write_bytes(gzip.compress(_lines(records).encode(), mtime=0))


def _write_array(path: Path, records: Records, recipe: SourceRecipe) -> None:
  del recipe
  path.write_text(json.dumps(records, indent=1))


def _write_text(path: Path, records: Records, recipe: SourceRecipe) -> None:
  del recipe
  path.write_text("".join(record["text"] + "\n" for record in records))


def _write_csv(path: Path, records: Records, recipe: SourceRecipe) -> None:
  del recipe
  with path.open("w", newline="") as file:
    writer = csv.writer(file, quoting=csv.QUOTE_ALL)
    writer.writerow(("number", "text"))
    for number, record in enumerate(records):
      writer.writerow((number, record["text"]))


def _table(records: Records, recipe: SourceRecipe) -> pa.Table:
  fields = [("text", pa.string())]
  if recipe.kind == "pretokenized":
    fields = [
      ("input_ids", pa.list_(pa.int64())),
      ("labels", pa.list_(pa.int32())),
      ("loss_mask", pa.list_(pa.float64())),
    ]
  return pa.Table.from_pylist(records, schema=pa.schema(fields))


def _write_parquet(path: Path, records: Records, recipe: SourceRecipe) -> None:
  pq.write_table(_table(records, recipe), path, row_group_size=3)


def _write_arrow(path: Path, records: Records, recipe: SourceRecipe) -> None:
  table = _table(records, recipe)
  with pa.ipc.new_file(path, table.schema) as writer:
    writer.write_table(table, max_chunksize=3)


_WRITERS: dict[str, tuple[str, Callable[..., None]]] = {
  "json_lines": (".jsonl", _write_lines),
  "json_lines_gz": (".jsonl.gz", _write_gz),
  "json_array": (".json", _write_array),
  "parquet": (".parquet", _write_parquet),
  "arrow": (".arrow", _write_arrow),
  "text": (".txt", _write_text),
  "csv": (".csv", _write_csv),
}


@dataclasses.dataclass(frozen=True)
class Generator:
  """A function that gives the records one after the other; can be pickled."""

  records: tuple[dict[str, Any], ...]

  def __call__(self) -> Any:
    yield from self.records


def open_by_number(
  paths: Sequence[str], records: Records, recipe: SourceRecipe, *, name: str
) -> Any:
  """The source as `Records`."""
  from hpgrain.sources.by_index.formats import open_records
  from hpgrain.sources.by_index.in_memory import InMemoryRecords

  if recipe.form == "memory":
    return InMemoryRecords(records, name=name)
  return open_records(list(paths), name=name)


def open_in_turn(
  paths: Sequence[str], records: Records, recipe: SourceRecipe, *, name: str
) -> Any:
  """The source as `InTurn`."""
  from hpgrain.sources.in_turn.iterables import IterableInTurn
  from hpgrain.sources.in_turn.numbered import NumberedInTurn

  if recipe.form == "memory":
    return NumberedInTurn(open_by_number(paths, records, recipe, name=name))
  if recipe.form == "generator":
    return IterableInTurn(Generator(tuple(records)), name=name)
  from hpgrain.sources.in_turn import formats

  return formats.open_in_turn(list(paths), name=name)
