import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import AxisType

import hpgrain
from hpgrain import context_parallel, loss
from hpgrain.context_layout import ContextLayout

# What a cp of 2 divides into, for every layout.
_MULTIPLE = 4


def _batch(segment_ids, loss_mask, source_ids):
  return {
    "segment_ids": np.array(segment_ids, np.int32),
    "loss_mask": np.array(loss_mask, np.float32),
    "source_ids": np.array(source_ids, np.int32),
  }


def _picture():
  """The batch that is drawn on top of the module, and a row of padding."""
  return _batch(
    [[1, 1, 1, 2, 2, 0], [0] * 6],
    [[1, 1, 0, 1, 0, 0], [0] * 6],
    [[0, 0, 0, 1, 1, -1], [-1] * 6],
  )


def test_weights_per_token_sequence_and_source():
  batch = _picture()
  zeros = [0] * 6
  tokens = jax.jit(loss.token_weights)(batch)
  assert tokens.tolist() == [[1, 1, 0, 1, 0, 0], zeros]
  sequences = jax.jit(loss.sequence_weights)(batch)
  assert sequences.tolist() == [[0.5, 0.5, 0, 1, 0, 0], zeros]
  sources = loss.source_weights(batch, [3, 0.5])
  assert sources.tolist() == [[3, 3, 0, 0.5, 0, 0], zeros]
  both = loss.source_weights(batch, [3, 0.5], base=sequences)
  assert both.tolist() == [[1.5, 1.5, 0, 0.5, 0, 0], zeros]
  for weights in (tokens, sequences, sources, both):
    assert weights.dtype == np.float32
  assert float(hpgrain.num_loss_tokens(batch)) == 3
  count = loss.num_loss_sequences(batch)
  assert int(count) == 2 and count.dtype == np.int32


def test_the_mean_of_each():
  batch = _picture()
  losses = np.array([[1, 3, 90, 8, 90, 90], [90] * 6], np.float32)
  assert float(loss.mean_loss(losses, loss.token_weights(batch))) == 4
  # The mean of 2 and 8.
  assert float(loss.mean_loss(losses, loss.sequence_weights(batch))) == 5
  by_source = loss.source_weights(batch, [1, 2])
  assert float(loss.mean_loss(losses, by_source)) == (1 + 3 + 2 * 8) / 4
  sums, counts = jax.jit(loss.loss_by_source, static_argnums=2)(
    losses, batch, 3
  )
  assert sums.tolist() == [4, 8, 0]
  assert counts.tolist() == [2, 1, 0]
  sums, counts = loss.loss_by_source(
    losses, batch, 2, weights=loss.sequence_weights(batch)
  )
  assert sums.tolist() == [2, 8]
  assert counts.tolist() == [1, 1]


def test_weights_in_the_loss_count_as_that_many_tokens():
  batch = _batch([[1, 1, 2, 2, 2, 3]], [[0.5, 1.5, 3, 0, 3, 0]], [[0] * 6])
  assert float(loss.num_loss_tokens(batch)) == 8
  weights = loss.sequence_weights(batch)
  assert weights.tolist() == [[0.25, 0.75, 0.5, 0, 0.5, 0]]
  # The third has no loss, and so is none.
  assert int(loss.num_loss_sequences(batch)) == 2
  losses = np.array([[2, 4, 1, 7, 3, 7]], np.float32)
  assert float(loss.mean_loss(losses, weights)) == (3.5 + 2) / 2
  tokens = loss.token_weights(batch)
  assert float(loss.mean_loss(losses, tokens)) == (1 + 6 + 3 + 9) / 8


def test_nothing_to_learn_is_a_loss_of_0():
  batch = _batch([[0, 0]], [[0, 0]], [[-1, -1]])
  losses = jnp.array([[jnp.nan, jnp.inf]])
  learn = jax.jit(jax.value_and_grad(loss.mean_loss))
  for weights in (loss.token_weights(batch), loss.sequence_weights(batch)):
    value, grad = learn(losses, weights)
    assert float(value) == 0
    assert grad.tolist() == [[0, 0]]
  sums, counts = loss.loss_by_source(losses, batch, 1)
  assert sums.tolist() == counts.tolist() == [0]


@pytest.mark.parametrize("left_out", [np.nan, np.inf])
def test_what_has_no_weight_is_left_out_whatever_it_is(left_out):
  batch = _picture()
  losses = np.array([[1, 3, 0, 8, 0, 0], [0] * 6], np.float32)
  losses = jnp.where(batch["loss_mask"] == 0, left_out, losses)
  assert float(loss.mean_loss(losses, loss.token_weights(batch))) == 4
  grad = jax.grad(loss.mean_loss)(losses, batch["loss_mask"])
  assert (grad == batch["loss_mask"] / np.float32(3)).all()
  sums, counts = loss.loss_by_source(losses, batch, 2)
  assert sums.tolist() == [4, 8]
  assert counts.tolist() == [2, 1]


def test_padding_is_no_sequence_and_no_source_whatever_it_weighs():
  batch = _batch(
    [[1, 1, 2, 0], [0] * 4],
    [[1, 3, 2, 5], [7] * 4],
    [[0, 0, 1, -1], [-1] * 4],
  )
  assert loss.sequence_weights(batch).tolist() == [[0.25, 0.75, 1, 0], [0] * 4]
  assert int(loss.num_loss_sequences(batch)) == 2
  expected = [[2, 6, 8, 0], [0] * 4]
  assert loss.source_weights(batch, [2, 4]).tolist() == expected
  sums, counts = loss.loss_by_source(np.ones((2, 4)), batch, 2)
  assert sums.tolist() == counts.tolist() == [4, 2]
  # Tokens weigh what they are given.
  assert float(loss.num_loss_tokens(batch)) == 39
  # As many sequences as positions, the most there may be.
  full = _batch([[1, 2, 3]], [[1, 1, 1]], [[0] * 3])
  assert int(loss.num_loss_sequences(full)) == 3


def test_a_large_sum_grows_by_the_tokens_of_further_rows():
  # float32 holds 2**24 + 8, but 2**24 + 1 is 2**24, however often 1 is added.
  weights = np.array([[2.0**24] + [0] * 7, [1] * 8], np.float32)
  batch = _batch(np.ones((2, 8)), weights, np.zeros((2, 8)))
  sums, counts = jax.jit(loss.loss_by_source, static_argnums=2)(
    np.ones((2, 8), np.float32), batch, 1
  )
  assert sums.tolist() == counts.tolist() == [2**24 + 8]
  assert sums.dtype == counts.dtype == np.float32


def test_tokens_beyond_2_to_the_24th_are_the_nearest_float32():
  mask = np.ones((20, 2**20), np.float32)
  mask[0, 0] = 0
  count = jax.jit(loss.num_loss_tokens)({"loss_mask": mask})
  assert count.dtype == np.float32
  assert float(count) == np.float32(20 * 2**20 - 1) == 20 * 2**20
  # What docs/loss.md has for an exact number.
  assert int(jnp.sum(mask != 0, dtype=jnp.int32)) == 20 * 2**20 - 1


def test_sources_may_weigh_less_than_nothing():
  batch = _batch([[1, 2]], [[1, 1]], [[0, 1]])
  weights = loss.source_weights(batch, [2, -1])
  losses = jnp.array([[5.0, 3.0]])
  assert float(loss.mean_loss(losses, weights)) == 7


def test_a_source_without_a_weight_is_seen_in_the_loss():
  batch = _picture()
  losses = np.ones((2, 6), np.float32)
  weights = loss.source_weights(batch, [3])
  assert np.isnan(weights[0, 3]) and float(weights[0, 0]) == 3
  assert np.isnan(loss.mean_loss(losses, weights))
  sums, counts = loss.loss_by_source(losses, batch, 1)
  assert np.isnan(sums).all() and np.isnan(counts).all()
  # Padding has no source, and is no reason.
  one = _batch([[1, 0]], [[1, 0]], [[0, -1]])
  assert loss.source_weights(one, [3]).tolist() == [[3, 0]]
  # What a caller gives padding counts for no source.
  sums, counts = loss.loss_by_source(
    losses[:1, :2], one, 1, weights=jnp.ones((1, 2))
  )
  assert sums.tolist() == counts.tolist() == [1]


def test_what_is_wrong_is_said():
  batch = _picture()
  with pytest.raises(ValueError, match=r"shape \(\)"):
    loss.source_weights(batch, 2.0)
  with pytest.raises(ValueError, match=r"shape \(0,\)"):
    loss.source_weights(batch, [])
  with pytest.raises(ValueError, match="at least 1 source, got 0"):
    loss.loss_by_source(np.ones((2, 6)), batch, 0)
  del batch["source_ids"]
  message = r"\['loss_mask', 'segment_ids'\].* set get_batch.source_ids=True"
  with pytest.raises(ValueError, match=message):
    loss.source_weights(batch, [1])
  with pytest.raises(ValueError, match=message):
    loss.loss_by_source(np.ones((2, 6)), batch, 1)


# Against a loop over the positions.


def _slow(batch, losses, factors):
  """The weights and sums, one position at a time."""
  segments, mask = batch["segment_ids"], batch["loss_mask"].astype(float)
  sources = batch["source_ids"]
  totals, by_source = {}, [[0.0, 0.0] for _ in factors]
  for place in np.ndindex(*mask.shape):
    key = (place[0], int(segments[place]))
    totals[key] = totals.get(key, 0.0) + mask[place]
  sequences, weighed = np.zeros(mask.shape), np.zeros(mask.shape)
  for place in np.ndindex(*mask.shape):
    if mask[place]:
      sequences[place] = mask[place] / totals[place[0], int(segments[place])]
      weighed[place] = mask[place] * factors[sources[place]]
      by_source[sources[place]][0] += losses[place] * mask[place]
      by_source[sources[place]][1] += mask[place]
  return {
    "sequences": sequences,
    "sources": weighed,
    "num_tokens": mask.sum(),
    "num_sequences": sum(total > 0 for total in totals.values()),
    "by_source": tuple(np.array(by_source).T),
    "mean": (losses * sequences).sum() / max(sequences.sum(), 1),
  }


def _every(batch, losses, factors):
  sequences = loss.sequence_weights(batch)
  return {
    "sequences": sequences,
    "sources": loss.source_weights(batch, factors),
    "num_tokens": loss.num_loss_tokens(batch),
    "num_sequences": loss.num_loss_sequences(batch),
    "by_source": loss.loss_by_source(losses, batch, len(factors)),
    "mean": loss.mean_loss(losses, sequences),
  }


def _assert_close(found, expected):
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=2e-5, atol=1e-6),
    found,
    expected,
  )


_fast = jax.jit(_every, static_argnums=2)
_FACTORS = (1.0, 0.25, 3.0)


def _packed(rows, rng, *, width, multiple=1):
  """A batch of rows of pieces, [(positions, source, weights)]."""
  shape = (len(rows), width)
  batch = _batch(np.zeros(shape), np.zeros(shape), np.full(shape, -1))
  for r, pieces in enumerate(rows):
    start = 0
    for number, (length, source, kind) in enumerate(pieces, 1):
      if start + length > width:
        break
      span = slice(start, start + length)
      batch["segment_ids"][r, span] = number
      batch["source_ids"][r, span] = source
      batch["loss_mask"][r, span] = {
        "none": np.zeros,
        "all": np.ones,
        "some": lambda n: rng.integers(0, 2, n),
        "weights": lambda n: rng.integers(0, 5, n) / 4,
      }[kind](length)
      start += -(-length // multiple) * multiple
  losses = rng.random(shape).astype(np.float32) * 10
  return batch, losses


_PIECES = st.tuples(
  st.integers(1, 9),
  st.integers(0, 2),
  st.sampled_from(["none", "all", "some", "weights"]),
)
_ROWS = st.lists(st.lists(_PIECES, max_size=8), min_size=4, max_size=4)


@given(_ROWS, st.integers(0, 2**32 - 1))
def test_any_packed_batch_is_weighed_as_a_loop_weighs_it(rows, seed):
  batch, losses = _packed(rows, np.random.default_rng(seed), width=24)
  _assert_close(_fast(batch, losses, _FACTORS), _slow(batch, losses, _FACTORS))


# On meshes.


def _mixed(width=32):
  """Rows of many pieces, with gaps where pieces have a multiple."""
  rng = np.random.default_rng(7)
  kinds = ["all", "some", "weights", "none"]
  rows = [
    [
      (int(rng.integers(1, 13)), int(rng.integers(0, 3)), kinds[i % 4])
      for i in range(9)
    ]
    for _ in range(4)
  ]
  return _packed(rows, rng, width=width, multiple=_MULTIPLE)


_LAYOUTS = ("contiguous", "zigzag", "striped", "document_zigzag")


def _mesh(axis_type=AxisType.Auto):
  return jax.make_mesh(
    (2, 2, 2), ("data", "cp", "tp"), axis_types=(axis_type,) * 3
  )


def _placed(fields, layout, sharding):
  find = jax.jit(context_parallel.row_positions, static_argnums=1)
  positions = np.broadcast_to(
    find(fields["segment_ids"], layout), fields["segment_ids"].shape
  )
  return positions, {
    name: jax.device_put(np.take_along_axis(values, positions, 1), sharding)
    for name, values in fields.items()
  }


@pytest.mark.parametrize("name", _LAYOUTS)
@pytest.mark.parametrize("spec", [("data", "cp"), ("data", ("cp", "tp"))])
def test_every_layout_on_a_mesh_is_weighed_as_without(name, spec):
  batch, losses = _mixed()
  expected = _slow(batch, losses, _FACTORS)
  layout = ContextLayout(name, 2, _MULTIPLE)
  sharding = jax.NamedSharding(_mesh(), jax.P(*spec))
  positions, placed = _placed({**batch, "losses": losses}, layout, sharding)
  found = _fast(placed, placed["losses"], _FACTORS)
  for key in ("sequences", "sources"):
    assert found[key].sharding.is_equivalent_to(sharding, 2)
    in_order = np.empty(positions.shape, np.float32)
    np.put_along_axis(in_order, positions, np.asarray(found[key]), 1)
    found[key] = in_order
  _assert_close(found, expected)


def test_axes_of_type_explicit_do_as_well():
  batch, losses = _mixed()
  expected = _slow(batch, losses, _FACTORS)
  mesh = _mesh(AxisType.Explicit)
  sharding = jax.NamedSharding(mesh, jax.P("data", ("cp", "tp")))
  placed = jax.device_put({**batch, "losses": losses}, sharding)
  _assert_close(_fast(placed, placed["losses"], _FACTORS), expected)
  with jax.set_mesh(mesh):
    found = _fast(placed, placed["losses"], _FACTORS)
  assert found["sequences"].sharding == sharding
  _assert_close(found, expected)


def test_inside_shard_map_sums_are_added():
  batch, losses = _mixed()
  expected = _slow(batch, losses, _FACTORS)
  mesh, spec = _mesh(), jax.P("data", ("cp", "tp"))
  placed = jax.device_put(
    {**batch, "losses": losses}, jax.NamedSharding(mesh, spec)
  )

  def step(batch):
    weights = loss.sequence_weights(batch)

    def sums(batch, weights):
      found = (
        jnp.sum(batch["losses"] * weights),
        jnp.sum(weights),
        jnp.sum(loss.token_weights(batch)),
        jnp.sum(loss.source_weights(batch, _FACTORS)),
        loss.loss_by_source(batch["losses"], batch, 3),
      )
      return jax.lax.psum(found, ("data", "cp", "tp"))

    return jax.shard_map(
      sums, mesh=mesh, in_specs=(spec, spec), out_specs=jax.P()
    )(batch, weights)

  total, count, tokens, weighed, by_source = jax.jit(step)(placed)
  _assert_close(total / count, expected["mean"])
  _assert_close(tokens, expected["num_tokens"])
  _assert_close(weighed, expected["sources"].sum())
  _assert_close(by_source, expected["by_source"])


def _mean_of_tokens(batch):
  return loss.mean_loss(batch["losses"], loss.token_weights(batch))


def _mean_by_weights_alone(batch):
  """The losses are whole, what weighs them a slice."""
  return loss.mean_loss(np.ones((1, 2), np.float32), batch["loss_mask"])


def _mean_of_losses_alone(batch):
  return loss.mean_loss(batch["losses"], np.ones((1, 2), np.float32))


@pytest.mark.parametrize(
  ("function", "name"),
  [
    (_mean_of_tokens, "mean_loss"),
    (_mean_by_weights_alone, "mean_loss"),
    (_mean_of_losses_alone, "mean_loss"),
    (loss.num_loss_tokens, "num_loss_tokens"),
    (loss.num_loss_sequences, "num_loss_sequences"),
    (loss.sequence_weights, "sequence_weights"),
  ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_inside_shard_map_what_needs_the_whole_is_refused(
  function, name, compiled
):
  # Means of 1 and 4 on two devices: their mean is 2.5, and that of all is 3.
  batch = _batch([[1, 1, 1, 1]], [[1, 0, 1, 1]], [[0] * 4])
  batch["losses"] = np.array([[1, 9, 3, 5]], np.float32)
  assert float(_mean_of_tokens(batch)) == 3
  mesh, spec = _mesh(), jax.P(None, "cp")

  def averaged(batch):
    return jax.lax.pmean(function(batch), "cp")

  mapped = jax.shard_map(
    jax.jit(averaged) if compiled else averaged,
    mesh=mesh,
    in_specs=(spec,),
    out_specs=jax.P(),
  )
  message = f"^{name} needs the whole batch, and inside shard_map.*'cp'.*psum"
  with pytest.raises(ValueError, match=message):
    jax.jit(mapped)(batch)


def test_no_array_of_positions_squared_or_of_positions_for_each_source():
  rows, length, num_sources = 2, 4096, 100
  fields = {
    name: jax.ShapeDtypeStruct((rows, length), dtype)
    for name, dtype in (
      ("segment_ids", np.int32),
      ("loss_mask", np.float32),
      ("source_ids", np.int32),
      ("losses", np.float32),
    )
  }

  def every(batch):
    return (
      loss.sequence_weights(batch),
      loss.num_loss_sequences(batch),
      loss.source_weights(batch, [1.0] * num_sources),
      loss.loss_by_source(batch["losses"], batch, num_sources),
    )

  compiled = jax.jit(every).lower(fields).compile()
  used = compiled.memory_analysis().temp_size_in_bytes
  assert used < 30 * rows * length * 4


# Bugs that a test above must find.


def _of_each_slice(mask, segment_ids):
  """Sums over the half of a row that a device of cp=2 holds."""
  half = len(mask) // 2
  parts = (slice(0, half), slice(half, None))
  made = jnp.zeros(len(mask) + 1, mask.dtype)
  sums = [made.at[segment_ids[part]].add(mask[part]) for part in parts]
  return jnp.maximum(*sums)


def _counting_positions(mask, segment_ids):
  """Positions, whatever they weigh."""
  return jnp.zeros(len(mask) + 1, mask.dtype).at[segment_ids].add(1)


def _over_the_row(mask, segment_ids):
  """The sum of the row: a mean per row, not per sequence."""
  del segment_ids
  return jnp.full(len(mask) + 1, mask.sum())


@pytest.mark.parametrize(
  "planted", [_of_each_slice, _counting_positions, _over_the_row]
)
def test_planted_bugs_are_found(monkeypatch, planted):
  monkeypatch.setattr(loss, "_sums_of_segments", planted)
  batch, losses = _mixed()
  # Compiled anew, as the function is another one.
  found = jax.jit(lambda *arrays: _every(*arrays, _FACTORS))(batch, losses)
  with pytest.raises(AssertionError, match="Not equal to tolerance"):
    _assert_close(found, _slow(batch, losses, _FACTORS))
