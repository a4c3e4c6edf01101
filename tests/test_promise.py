"""The global rows are a function of data, configuration and seed alone.

Hypothesis draws what decides the rows (`Recipe`) and what must not (`Leg`:
mesh, processes, batch size, prefetch, interruptions), and every field of every
global batch is compared with the slow reference's.
"""

import tempfile
from pathlib import Path

from hypothesis import given, reject
from hypothesis import strategies as st
from promise import (
  NUM_DEVICES,
  Leg,
  NoRows,
  Recipe,
  SourceRecipe,
  check,
)

# (axes, outermost first; which of them split rows)
MESHES = (
  (("data", "cp", "tp"), ("data",)),
  (("cp", "tp", "data"), ("data",)),
  (("stage", "data", "cp", "tp"), ("data",)),
  (("replica", "fsdp", "cp"), ("replica", "fsdp")),
  (("fsdp", "tp", "cp", "replica"), ("replica", "fsdp")),
  (("data", "tp"), ("data",)),
  (("data",), ("data",)),
)

SPLITS = ("1", "2,1,1", "0,1,2", ".6, .4", "1, 1, 1")


@st.composite
def legs(draw, *, whole_rows=False):
  """Legs of a run; whole_rows: none splits positions."""
  made = []
  for _ in range(draw(st.integers(1, 3))):
    axes, data_axes = draw(st.sampled_from(MESHES))
    sizes = dict.fromkeys(axes, 1)
    free = [axis for axis in axes if not (whole_rows and axis == "cp")]
    # Eight devices are three factors of 2, each given to some axis.
    for _ in range(3):
      sizes[draw(st.sampled_from(free))] *= 2
    sequence_parallel = False
    if "tp" in axes and not whole_rows:
      sequence_parallel = draw(st.booleans())
    leg = Leg(
      axes=tuple(sizes.items()),
      data_axes=data_axes,
      sequence_parallel=sequence_parallel,
      batch_size=0,
      num_batches=draw(st.integers(0, 4)),
      prefetch=draw(st.integers(0, 3)),
      processes=draw(processes()),
      train_iters=draw(st.sampled_from((1, 1000))),
      mmap=draw(st.booleans()),
      contiguous=draw(st.booleans()),
      lazy=draw(st.booleans()),
      max_open_files=draw(st.sampled_from((2, 512))),
      moved=draw(st.booleans()),
    )
    most = max(1, 8 // leg.row_parts)
    batch_size = leg.row_parts * draw(st.integers(1, most))
    made.append(Leg(**{**vars(leg), "batch_size": batch_size}))
  return made


def processes():
  """Which process holds each device: one for all, in blocks, or any."""
  blocks = [
    tuple(i * count // NUM_DEVICES for i in range(NUM_DEVICES))
    for count in (1, 2, 4, 8)
  ]
  anyhow = st.tuples(*[st.integers(0, 2)] * NUM_DEVICES)
  return st.one_of(st.sampled_from(blocks), anyhow)


@st.composite
def cases(draw, *, kind, blended=False):
  """A recipe of one kind, and legs that fit it."""
  whole_rows = draw(st.integers(0, 4)) == 0
  chosen = draw(legs(whole_rows=whole_rows))
  which = draw(st.sampled_from(("train", "train", "train", "valid", "test")))
  train = which == "train"
  parts = max(leg.position_parts for leg in chosen)
  seq_length = parts * draw(st.integers(1, max(1, 12 // parts)))
  epochs = draw(st.sampled_from((None, None, 1, 2, 3)))
  simple_blend = "no"
  if blended and kind == "precut":
    simple_blend = draw(st.sampled_from(("no", "inter", "intra")))
  split = draw(st.sampled_from((None, None, *SPLITS)))
  if split is not None and not has_split(split, which):
    split = None
  recipe = Recipe(
    kind=kind,
    sources=draw(sources(kind, blended, simple_blend, split)),
    seq_length=seq_length,
    seed=draw(st.sampled_from((0, 1, 2**40))),
    extra=draw(st.sampled_from((1, 1, 0))),
    which=which,
    split=split,
    simple_blend=simple_blend,
    keep_last=draw(st.booleans()),
    epochs=epochs,
    sampler_type=(
      "single" if epochs is None and draw(st.booleans()) else "cyclic"
    ),
    end_of_data=draw(st.sampled_from((None, "drop", "pad"))),
    first_row=(draw(st.sampled_from((0, 0, 1, 7, 10**9 + 1))) if train else 0),
    labels_are_shifted=not whole_rows,
    mask_boundary_labels=draw(st.booleans()),
    reset_position_ids=draw(st.booleans()),
    reset_attention_mask=draw(st.booleans()),
    eod_mask_loss=draw(st.booleans()),
  )
  return recipe, chosen


def has_split(split, which):
  """Whether that split has rows, when the corpora below are shared out."""
  weights = [float(weight) for weight in split.split(",")]
  index = ("train", "valid", "test").index(which)
  return index < len(weights) and weights[index] > 0


@st.composite
def sources(draw, kind, blended, simple_blend, split):
  """The corpora of a recipe."""
  if kind == "mock":
    return ()
  count = draw(st.integers(2, 4)) if blended else 1
  weighted = blended and simple_blend == "no" and draw(st.booleans())
  named = draw(st.booleans())
  # Shared out, the first corpus has rows in every split, others may not.
  least = [1 if split is None else 12] + [1] * (count - 1)
  if weighted:
    least = [least[0]] * count
  return tuple(
    SourceRecipe(
      seed=draw(st.integers(0, 2**16)),
      rows=least[number] + draw(st.integers(0, 9)),
      slack=draw(st.integers(0, 12)),
      max_length=draw(st.sampled_from((2, 5, 12))),
      dtype=draw(
        st.sampled_from(("uint8", "int8", "int16", "uint16", "int32", "int64"))
      ),
      name=f"quelle-ä{number}" if named else None,
      weight=(
        draw(st.sampled_from((1, 3, 0.1, 0.25, 7.5, 1e-3)))
        if weighted
        else None
      ),
    )
    for number in range(count)
  )


def check_case(case):
  recipe, chosen = case
  with tempfile.TemporaryDirectory() as folder:
    try:
      check(recipe, chosen, Path(folder))
    except NoRows:
      reject()


@given(cases(kind="gpt"))
def test_gpt_batches_are_the_reference_s(case):
  check_case(case)


@given(cases(kind="precut"))
def test_precut_batches_are_the_reference_s(case):
  check_case(case)


@given(cases(kind="mock"))
def test_mock_batches_are_the_reference_s(case):
  check_case(case)


@given(cases(kind="gpt", blended=True))
def test_blended_gpt_batches_are_the_reference_s(case):
  check_case(case)


@given(cases(kind="precut", blended=True))
def test_blended_precut_batches_are_the_reference_s(case):
  check_case(case)
