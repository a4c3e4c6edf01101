"""The global rows are a function of data, configuration and seed alone.

Hypothesis draws what decides the rows (`Recipe`) and what must not (`Leg`:
mesh, processes, batch size, prefetch, caches, interruptions), and every field
of every global batch is compared with the slow reference's.
"""

import dataclasses
import json
import tempfile
from pathlib import Path

import hypothesis
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from promise import (
  NUM_DEVICES,
  Leg,
  NoRows,
  Recipe,
  SourceRecipe,
  check,
  make_config,
  write_sources,
)

import hpgrain
from hpgrain import _kernels, shard
from hpgrain import batches as batches_lib

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

# Of rows that are cut; documents that are packed can have one of their own.
LAYOUTS = ("contiguous", "zigzag", "striped")

SPLITS = ("1", "2,1,1", "0,1,2", ".6, .4", "1, 1, 1")


@st.composite
def legs(draw, *, whole_rows=False, layouts=LAYOUTS):
  """Legs of a run; whole_rows: none splits positions."""
  made = []
  for _ in range(draw(st.sampled_from((2, 3, 4, 1)))):
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
      num_batches=draw(st.sampled_from((2, 1, 3, 4, 0))),
      prefetch=draw(st.integers(0, 3)),
      processes=draw(processes()),
      layout=draw(st.sampled_from(layouts)),
      train_iters=draw(st.sampled_from((1, 1000))),
      cached=draw(st.booleans()),
      map_form=draw(st.sampled_from(("json", "npy", "tuple"))),
      mmap=draw(st.booleans()),
      contiguous=draw(st.booleans()),
      lazy=draw(st.booleans()),
      max_open_files=draw(st.sampled_from((2, 512))),
      moved=draw(st.booleans()),
    )
    most = max(1, 8 // leg.row_parts)
    batch_size = leg.row_parts * draw(st.integers(1, min(most, 3)))
    made.append(dataclasses.replace(leg, batch_size=batch_size))
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
def cases(draw, *, kind, ends, blend=None, order="stable"):
  """A recipe of one kind and order, and legs that fit it.

  `ends` is "never" or "epochs" for train, "once" for valid and test; `blend`
  is None for one source, else how several are blended: by "weights", by their
  "rows", "inter" or "intra".
  """
  ltor = kind != "mock" and draw(st.integers(0, 4)) == 4
  whole_rows = not ltor and draw(st.integers(0, 4)) == 0
  chosen = draw(legs(whole_rows=whole_rows))
  train = ends != "once"
  which = "train" if train else draw(st.sampled_from(("valid", "test")))
  parts = max(leg.position_multiple for leg in chosen)
  seq_length = parts * draw(st.integers(1, max(1, 12 // parts)))
  epochs, sampler_type = None, draw(st.sampled_from(("cyclic", None)))
  if order == "megatron" and ends == "never":
    sampler_type = "cyclic"
  if ends == "epochs":
    epochs = draw(st.sampled_from((2, 1, 3, None)))
    sampler_type = "cyclic" if epochs else "single"
  starts = (0, 1, 7, 10**9 + 1) if ends == "never" else (0, 1, 7)
  split = draw(st.sampled_from((None, None, *SPLITS)))
  if split is not None and not has_split(split, which):
    split = None
  recipe = Recipe(
    kind=kind,
    sources=draw(sources(kind, blend, split)),
    seq_length=seq_length,
    seed=draw(st.sampled_from((0, 1, 2**40))),
    extra=draw(st.sampled_from((1, 1, 0))),
    which=which,
    split=split,
    order=order,
    simple_blend=blend if blend in ("inter", "intra") else "no",
    keep_last=draw(st.booleans()),
    epochs=epochs,
    sampler_type=sampler_type,
    end_of_data=draw(st.sampled_from((None, "drop", "pad"))),
    first_row=draw(st.sampled_from(starts)) if train else 0,
    labels_are_shifted=not whole_rows,
    mask_boundary_labels=draw(st.booleans()),
    reset_position_ids=draw(st.booleans()),
    reset_attention_mask=draw(st.booleans()),
    eod_mask_loss=draw(st.booleans()),
    ltor=ltor,
  )
  if train and kind != "mock":
    recipe = dataclasses.replace(recipe, **draw(samplers()))
  if order == "megatron":
    return draw(sized(recipe, chosen))
  return recipe, chosen


@st.composite
def samplers(draw):
  """Buckets and maps, in two cases of five."""
  kinds = ("whole", "short", "repeating", "partial")
  chosen = draw(st.integers(0, 4))
  made = {}
  if chosen == 4 or (chosen == 3 and draw(st.booleans())):
    made["data_sharding"] = draw(st.sampled_from((2, 1, 3, 5)))
  if chosen == 3:
    made["order_map"] = draw(st.sampled_from(kinds))
  return made


@st.composite
def sized(draw, recipe, chosen):
  """What Megatron's order depends on: for how many rows it is made."""
  changes = {"seed": recipe.seed % 2**32}
  if recipe.reads_one_epoch:
    changes["data_sharding"] = None
  most = max(leg.batch_size for leg in chosen)
  if recipe.which != "train":
    # The rows asked for are so many batches: all legs have the same.
    changes["eval_iters"] = draw(st.integers(1, 4))
    rows = 8 * draw(st.integers(1, 2))
    legs_ = [dataclasses.replace(leg, batch_size=rows) for leg in chosen]
    return dataclasses.replace(recipe, **changes), legs_
  # A map is of one number of rows, so it goes with one that is given.
  if recipe.order_map or draw(st.booleans()):
    first = min(recipe.first_row, 40)
    given = first + most + draw(st.sampled_from((0, 1, 30, 100)))
    changes |= {"train_samples": given, "first_row": first}
    iters = [
      draw(st.sampled_from((1, (given - first) // leg.batch_size)))
      for leg in chosen
    ]
  else:
    changes["first_row"] = 0
    iters = [draw(st.sampled_from((2, 1, 5, 40))) for leg in chosen]
    iters[0] = max(iters[0], -(-most // chosen[0].batch_size))
  legs_ = [
    dataclasses.replace(leg, train_iters=count)
    for leg, count in zip(chosen, iters, strict=True)
  ]
  return dataclasses.replace(recipe, **changes), legs_


def has_split(split, which):
  """Whether that split has rows, when the corpora below are shared out."""
  weights = [float(weight) for weight in split.split(",")]
  index = ("train", "valid", "test").index(which)
  return index < len(weights) and weights[index] > 0


@st.composite
def sources(draw, kind, blend, split):
  """The corpora of a recipe."""
  if kind == "mock":
    return ()
  count = draw(st.integers(2, 4)) if blend else 1
  weighted = blend == "weights"
  named = draw(st.booleans())
  # Shared out, the first corpus has rows in every split, others may not.
  least = [1 if split is None else 12] + [1] * (count - 1)
  if weighted:
    least = [least[0]] * count
  return tuple(
    SourceRecipe(
      seed=draw(st.integers(0, 2**16)),
      rows=least[number] + draw(st.sampled_from((20, 6, 40, 1, 0))),
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


def prove(**options):
  """Runs the property on cases of one kind, of which there are many."""
  examples = max(1, hypothesis.settings.default.max_examples * 3 // 5)
  few = hypothesis.settings(max_examples=examples)
  few(given(cases(**options))(check_case))()


ENDS = ("never", "epochs", "once")


@pytest.mark.parametrize("ends", ENDS)
def test_gpt_batches_are_the_reference_s(ends):
  prove(kind="gpt", ends=ends)


@pytest.mark.parametrize("ends", ENDS)
def test_precut_batches_are_the_reference_s(ends):
  prove(kind="precut", ends=ends)


@pytest.mark.parametrize("ends", ("never", "once"))
def test_mock_batches_are_the_reference_s(ends):
  prove(kind="mock", ends=ends)


@pytest.mark.parametrize("blend", ("weights", "rows"))
@pytest.mark.parametrize("ends", ENDS)
def test_blended_gpt_batches_are_the_reference_s(ends, blend):
  prove(kind="gpt", ends=ends, blend=blend)


@pytest.mark.parametrize("blend", ("weights", "rows", "inter", "intra"))
@pytest.mark.parametrize("ends", ENDS)
def test_blended_precut_batches_are_the_reference_s(ends, blend):
  prove(kind="precut", ends=ends, blend=blend)


@pytest.mark.parametrize("order", ("documents", "megatron"))
@pytest.mark.parametrize("blend", (None, "weights", "rows"))
@pytest.mark.parametrize("ends", ENDS)
def test_batches_of_an_order_with_an_index_are_the_reference_s(
  ends, blend, order
):
  prove(kind="gpt", ends=ends, blend=blend, order=order)


RUN = Recipe(
  kind="gpt",
  sources=(SourceRecipe(seed=3, rows=5, slack=3),),
  seq_length=8,
  epochs=2,
  end_of_data="pad",
)
LEG = Leg(axes=(("data", 2), ("cp", 2), ("tp", 2)), batch_size=4, num_batches=3)


def build(folder, recipe=RUN, leg=LEG):
  prefixes = write_sources(recipe, folder)
  mesh = shard.make_mesh(tuple(leg.sizes), leg.sizes)
  config = make_config(recipe, leg, prefixes, first_row=recipe.first_row)
  return hpgrain.build(config, mesh).train


def test_state_counts_the_rows_handed_out(tmp_path):
  batches = iter(build(tmp_path))
  states = [batches.get_state()]
  for _ in batches:
    states.append(batches.get_state())
  batches.close()
  # Ten rows in batches of four: the padding of the last is not counted.
  assert [state["rows"] for state in states] == [0, 4, 8, 10]
  assert {tuple(state) for state in states} == {
    ("version", "fingerprint", "rows")
  }
  for state in states:
    assert {**state, "rows": 0} == states[0]
    assert json.loads(json.dumps(state)) == state


def test_a_state_can_be_set_on_an_iterator_that_has_moved_on(tmp_path):
  batches = iter(build(tmp_path))
  first = next(batches)
  state = batches.get_state()
  second = next(batches)
  next(batches)
  assert next(batches, None) is None
  batches.set_state(state)
  again = next(batches)
  batches.close()
  for name in first:
    assert (again[name] == second[name]).all()
  assert any((again[name] != first[name]).any() for name in first)


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("mmap", [True, False])
def test_a_process_reads_its_windows_once_and_no_more(tmp_path, extra, mmap):
  recipe = dataclasses.replace(RUN, extra=extra)
  loader = build(tmp_path, recipe, dataclasses.replace(LEG, mmap=mmap))
  spec = loader.spec
  devices = spec.layout.sharding.mesh.devices

  def bytes_read(held):
    layout = shard.batch_layout(
      spec.layout.sharding, num_rows=4, num_positions=8, devices=held
    )
    _kernels.reset_gathered_bytes()
    batches_lib.make_shards(
      spec.samples,
      layout,
      first_row=0,
      end_row=None,
      options=spec.options,
    )
    return _kernels.gathered_bytes()

  # Two rows of four positions and the next token, two bytes each. Devices
  # that differ in tp alone are replicas.
  left, right = 2 * 5 * 2, 2 * (4 + extra) * 2
  assert bytes_read([devices[0, 0, 0]]) == left
  assert bytes_read([devices[0, 1, 1]]) == right
  assert bytes_read(list(devices[1, 0])) == left
  assert bytes_read(list(devices[:, 1].flat)) == 2 * right
  assert bytes_read(list(devices.flat)) == 2 * (left + right)
