"""Hypothesis strategies over pipelines that tokenize while training."""

import dataclasses
import math

from hypothesis import strategies as st
from online_data import (
  EMPTY_FORMATS,
  FORMATS,
  IN_TURN_FORMATS,
  TEXT_FORMATS,
  SourceRecipe,
)
from online_recipes import Leg, Recipe
from promise_build import Config
from reference_layouts import LAYOUTS
from reference_online import Transform
from reference_packers import Packing
from test_promise import legs as mesh_legs

WEIGHTS = (1, 3, 0.1, 0.25, 7.5, 1e-3, 1e-6)
PACKERS = ("best_fit", "first_fit", "concat", "pad", "fixed")


@st.composite
def transforms(draw, packer):
  # Of "fixed" no record may give several examples.
  lengths = (40, 40, 40, 8) if packer == "fixed" else (4, 8, 3, 12, 1)
  return Transform(
    kind=draw(st.sampled_from(("plaintext", "pretokenized"))),
    max_seq_len=draw(st.sampled_from(lengths)),
    labels_are_shifted=draw(st.booleans()),
    keep=draw(st.sampled_from(("all", "all", "even", "none"))),
  )


@st.composite
def packings(draw, mode, packer, max_seq_len):
  """How examples share rows, and the buckets that go with it."""
  multiple = 1 if packer == "concat" else draw(st.sampled_from((1, 1, 2, 4)))
  count = draw(st.integers(1, 3)) if packer == "fixed" else 1
  budget = draw(st.sampled_from((max_seq_len, 8, 5, 16)))
  budget = -(-max(budget, multiple * count) // multiple) * multiple
  packing = Packing(
    budget=budget,
    packer=packer,
    segment_multiple=multiple,
    examples_per_row=count,
    max_items=draw(st.sampled_from((0, 0, 0, 4, 3))),
    min_buffered=draw(st.sampled_from((1, 3, 200))),
    pack_window=draw(st.sampled_from((64, 4, 2, 1))),
  )
  policies = ["split", "truncate", "drop"]
  if max_seq_len <= packing.limit or packer == "concat":
    policies.append("error")
  if mode == "plans" and packer != "concat":
    policies.append("own_row")
  packing = dataclasses.replace(
    packing, overlong=draw(st.sampled_from(policies))
  )
  return packing, draw(buckets(mode, packing, max_seq_len))


@st.composite
def buckets(draw, mode, packing, max_seq_len):
  """Lengths that batches may have, where there may be several."""
  step = packing.segment_multiple
  found = set()
  counted = packing.packer in ("pad", "fixed")
  if packing.overlong == "own_row":
    most = max(packing.budget, max_seq_len)
    found.add(-(-most // step) * step + step)
  if counted and mode == "plans" and draw(st.booleans()):
    found |= {step * draw(st.integers(1, 3)), packing.budget}
  return tuple(sorted(found))


@st.composite
def sources(draw, mode, transform, epochs):
  """One source or several, of 0, 1 and many records."""
  count = draw(st.sampled_from((1, 2, 1, 3)))
  several = count > 1
  weighted = several and (mode == "streams" or draw(st.booleans()))
  found = []
  for _ in range(count):
    records = draw(st.sampled_from((12, 30, 5, 1, 0)))
    forms = list(EMPTY_FORMATS if not records else FORMATS)
    if records and transform.kind == "plaintext":
      forms += TEXT_FORMATS
    if records and mode == "streams":
      forms += IN_TURN_FORMATS
    if mode == "plans" and "generator" in forms:
      forms.remove("generator")
    found.append(
      SourceRecipe(
        kind=transform.kind,
        seed=draw(st.integers(0, 2**16)),
        records=records,
        max_size=draw(st.sampled_from((6, 3, 10))),
        form=draw(st.sampled_from(forms)),
        num_files=draw(st.integers(1, 3)),
        weight=draw(st.sampled_from(WEIGHTS)) if weighted else None,
        labels_are_shifted=transform.labels_are_shifted,
      )
    )
  return tuple(found)


@st.composite
def legs(draw):
  made = []
  for _ in range(draw(st.sampled_from((2, 3, 4, 1)))):
    row_parts = draw(st.integers(1, 3))
    made.append(
      Leg(
        batch_size=row_parts * draw(st.integers(1, 3)),
        num_batches=draw(st.sampled_from((2, 1, 3, 5, 0))),
        row_parts=row_parts,
        cuts=tuple(
          draw(st.lists(st.sampled_from((0.5, 0.25, 0.8)), max_size=2))
        ),
        owners=tuple(draw(st.lists(st.integers(0, 2), min_size=1, max_size=6))),
        cached=draw(st.booleans()),
        keep_tokens=draw(st.booleans()),
        chunk_records=draw(st.sampled_from((8192, 1, 7))),
        moved=draw(st.integers(0, 3)) == 0,
        handover_bytes=draw(st.sampled_from((2**20, 0, 100))),
      )
    )
  return made


@st.composite
def cases(draw, *, mode):
  """A recipe of one mode, and legs."""
  packer = draw(st.sampled_from(PACKERS))
  transform = draw(transforms(packer))
  packing, length_buckets = draw(packings(mode, packer, transform.max_seq_len))
  epochs = draw(st.sampled_from((None, 1, 2)))
  balance = None
  if mode == "plans" and draw(st.integers(0, 4)) == 0:
    shares = draw(st.integers(1, 3))
    balance = (shares, shares * draw(st.integers(1, 3)))
  shuffle = draw(st.booleans())
  recipe = Recipe(
    mode=mode,
    transform=transform,
    sources=draw(sources(mode, transform, epochs)),
    packing=packing,
    seed=draw(st.sampled_from((0, 1, 2**40))),
    shuffle=shuffle,
    epochs=epochs,
    plan_window=draw(st.sampled_from((8, 100, 3, 1))),
    num_streams=draw(st.sampled_from((4, 3, 1, 8))),
    buffer=draw(st.sampled_from((8, 100, 3, 1))) if shuffle else None,
    length_buckets=length_buckets,
    balance=balance,
    reset_position_ids=draw(st.booleans()),
    reset_attention_mask=draw(st.booleans()),
    eod_mask_loss=draw(st.booleans()),
  )
  return recipe, draw(legs())


@st.composite
def build_cases(draw, *, mode):
  """A recipe that a configuration can say, the rest of it, and meshes."""
  recipe, _ = draw(cases(mode=mode))
  train = draw(st.integers(0, 3)) > 0
  by_number = mode == "plans" or draw(st.booleans())
  micro = draw(st.integers(1, 2))
  packing, transform = recipe.packing, recipe.transform
  if packing.packer == "fixed":
    packing = Packing(
      budget=micro * transform.max_seq_len,
      packer="fixed",
      examples_per_row=micro,
    )
  shifted = transform.labels_are_shifted
  chosen = draw(mesh_legs(whole_rows=not shifted, layouts=LAYOUTS))
  if packing.packer == "concat":
    packing = dataclasses.replace(packing, overlong="error")
  if packing.max_items == 1:
    packing = dataclasses.replace(packing, max_items=0)
  packing, chosen, recipe = laid_out(packing, chosen, recipe)
  balance = None
  if recipe.balance and train:
    # A batch is whole blocks of rows, whatever its size.
    # No mesh may tear a share.
    parts = max(leg.row_parts for leg in chosen)
    shares = draw(st.sampled_from([n for n in (2, 4, 8) if n % parts == 0]))
    balance = (shares, 8)
    chosen = [
      dataclasses.replace(leg, batch_size=8 * draw(st.integers(1, 2)))
      for leg in chosen
    ]
  given = ["json_lines", "json_array", "parquet", "arrow"]
  given += TEXT_FORMATS if transform.kind == "plaintext" else ()
  given += () if by_number else ("json_lines_gz",)
  count = len(recipe.sources) if train or mode == "plans" else 1
  made = [
    dataclasses.replace(
      source,
      form=draw(st.sampled_from(given)),
      records=max(source.records, 1),
      weight=source.weight if train and count > 1 else None,
    )
    for source in recipe.sources[:count]
  ]
  buckets = recipe.length_buckets
  if packing.packer in ("pad", "fixed") and buckets:
    # The largest holds any row.
    most = max(packing.budget, buckets[-1])
    buckets = (*(b for b in buckets if b < most), most)
  recipe = dataclasses.replace(
    recipe,
    packing=packing,
    transform=dataclasses.replace(transform, keep="all"),
    sources=tuple(made),
    shuffle=recipe.shuffle and train,
    buffer=recipe.buffer if train and recipe.shuffle else None,
    epochs=recipe.epochs if train else 1,
    length_buckets=buckets,
    balance=balance,
  )
  config = Config(
    which="train" if train else "valid",
    micro_batch_size=micro,
    by_number=by_number,
    end_of_data=draw(st.sampled_from((None, "drop", "pad"))),
  )
  return recipe, config, chosen


def laid_out(packing, chosen, recipe):
  """Rooms for a layout that divides each document, where that can be."""
  name = "document_zigzag"
  if packing.packer in ("concat", "fixed") or not recipe.reset_attention_mask:
    chosen = [
      dataclasses.replace(leg, layout="zigzag") if leg.layout == name else leg
      for leg in chosen
    ]
  chunks = max(
    (2 * leg.context_ranks for leg in chosen if leg.layout == name), default=2
  )
  if chunks == 2:
    return packing, chosen, recipe
  multiple = math.lcm(packing.segment_multiple, chunks)

  def rounded(size):
    return -(-size // multiple) * multiple

  packing = dataclasses.replace(
    packing, segment_multiple=multiple, budget=rounded(packing.budget)
  )
  length_buckets = tuple(sorted({*map(rounded, recipe.length_buckets)}))
  recipe = dataclasses.replace(recipe, length_buckets=length_buckets)
  return packing, chosen, recipe
