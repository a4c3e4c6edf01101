"""Splash attention itself, in interpret mode, by what the adapter gives it."""

import functools
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_cases import (
  HEADS,
  LENGTH,
  WIDTH,
  WINDOW,
  cp_mesh,
  error,
  inputs_of,
  layout_of,
)
from jax.experimental.pallas.ops.tpu import splash_attention
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from hpgrain.attention_adapters import splash
from hpgrain.context_layout import ROW_ORDER, ContextLayout

_LAYOUTS = ("contiguous", "zigzag", "striped")
_CLOSE, _FAR = 5e-5, 1e-2


def _blocks(size=128):
  names = (
    *("block_q", "block_kv", "block_kv_compute"),
    *("block_q_dkv", "block_kv_dkv", "block_kv_dkv_compute"),
  )
  return splash_attention.BlockSizes(
    **dict.fromkeys(names, size), use_fused_bwd_kernel=True
  )


def _kernel(mask, num_ranks=1, blocks=128):
  return splash_attention.make_splash_mha(
    mask=splash_attention.MultiHeadMask([mask] * HEADS),
    block_sizes=_blocks(blocks),
    head_shards=1,
    q_seq_shards=num_ranks,
    interpret=True,
  )


def _call(kernel, query, key, value, ids):
  """Heads before positions, a row at a time; [rows, S, heads, width]."""
  query, key, value = (jnp.swapaxes(x, 1, 2) for x in (query, key, value))
  made = jax.vmap(kernel)(query * WIDTH**-0.5, key, value, segment_ids=ids)
  return jnp.swapaxes(made, 1, 2)


def _attend(layout, mask, gather=splash.gather_keys):
  """Attention of a batch split over cp, keys gathered: of q, k, v and ids."""
  ranks = layout.num_ranks
  kernel = _kernel(mask, ranks)
  slots, whole = P(None, "cp"), P()

  @functools.partial(
    jax.shard_map,
    mesh=cp_mesh(ranks),
    in_specs=(
      kernel.manual_sharding_spec(NamedSharding(cp_mesh(ranks), slots)),
      *(slots,) * 3,
      splash_attention.SegmentIds(q=slots, kv=whole),
    ),
    out_specs=slots,
    check_vma=False,
  )
  def local(kernel, query, key, value, ids):
    key, value = (gather(x, layout) for x in (key, value))
    return _call(kernel, query, key, value, ids)

  return functools.partial(local, kernel)


def test_on_one_device_it_is_the_dense_mask():
  inputs = inputs_of()
  kernel = _kernel(splash.mask(LENGTH))
  attend = functools.partial(_call, kernel)
  assert error(attend, inputs, splash.adapt(inputs)) < _CLOSE


@pytest.mark.parametrize(
  "name, window",
  [("contiguous", None), ("zigzag", WINDOW), ("striped", None)],
)
def test_over_cp_it_is_the_dense_mask_in_every_layout(name, window):
  inputs = inputs_of(layout_of(name, 2), window=window)
  mask = splash.mask(LENGTH, inputs.layout, sliding_window=window)
  attend = _attend(inputs.layout, mask)
  assert error(attend, inputs, splash.adapt(inputs)) < _CLOSE


_zigzag = functools.partial(inputs_of, layout_of("zigzag", 2), window=WINDOW)


def _forward_error(attend, ids):
  return error(attend, _zigzag(), ids, gradient=False)


def test_wrong_ids_are_seen():
  inputs = _zigzag()
  mask = splash.mask(LENGTH, inputs.layout, sliding_window=WINDOW)
  attend = jax.jit(_attend(inputs.layout, mask))
  ids = splash.adapt(inputs)
  assert _forward_error(attend, ids) < _CLOSE
  one_segment = jax.tree.map(jnp.ones_like, ids)
  assert _forward_error(attend, one_segment) > _FAR
  keys_in_slot_order = ids._replace(kv=inputs.segment_ids)
  assert _forward_error(attend, keys_in_slot_order) > _FAR


def test_keys_in_the_order_of_slots_are_seen():
  inputs = _zigzag()

  def gather(x, layout):
    del layout
    return jax.lax.all_gather(x, "cp", axis=1, tiled=True)

  mask = splash.mask(LENGTH, inputs.layout, sliding_window=WINDOW)
  attend = _attend(inputs.layout, mask, gather)
  assert _forward_error(attend, splash.adapt(inputs)) > _FAR


@pytest.mark.parametrize(
  "bug",
  [{"sliding_window": WINDOW + 1}, {"layout": ROW_ORDER}],
  ids=["W + 1", "queries in row order"],
)
def test_a_wrong_mask_is_seen(bug):
  inputs = _zigzag()
  options = {"layout": inputs.layout, "sliding_window": WINDOW, **bug}
  attend = _attend(inputs.layout, splash.mask(LENGTH, **options))
  assert _forward_error(attend, splash.adapt(inputs)) > _FAR


def test_rows_written_out():
  layout = ContextLayout("zigzag", 2)
  ids = np.repeat(np.int32([[1, 1, 0, 0, 2, 2, 2, 0]]), 32, axis=1)
  inputs = inputs_of(layout)
  inputs = type(inputs)(
    segment_ids=jnp.asarray(ids),
    position_ids=jnp.asarray(ids),
    layout=layout,
    max_segments=4,
    sliding_window=None,
  )
  found = jax.jit(lambda: splash.adapt(inputs))()
  assert (found.q == ids).all()
  # Slots hold positions 0 1 6 7, 2 3 4 5, of 32 each.
  rows = np.repeat(np.int32([[1, 1, 2, 2, 2, 0, 0, 0]]), 32, axis=1)
  assert (found.kv == rows).all()
  mask = splash.mask(8, layout, sliding_window=3)
  assert mask == splash.mask(
    8, layout, sliding_window=2, window_keys="reference"
  )
  assert mask != splash.mask(8, layout, sliding_window=4)
  assert mask[:, :].astype(int).tolist() == [
    [1, 0, 0, 0, 0, 0, 0, 0],
    [1, 1, 0, 0, 0, 0, 0, 0],
    [0, 0, 0, 0, 1, 1, 1, 0],
    [0, 0, 0, 0, 0, 1, 1, 1],
    [1, 1, 1, 0, 0, 0, 0, 0],
    [0, 1, 1, 1, 0, 0, 0, 0],
    [0, 0, 1, 1, 1, 0, 0, 0],
    [0, 0, 0, 1, 1, 1, 0, 0],
  ]


def test_rows_of_orders_of_their_own_are_refused():
  layout = layout_of("document_zigzag", 2)
  said = "'document_zigzag' over cp=2 each row has an order of its own"
  with pytest.raises(ValueError, match=said):
    splash.adapt(inputs_of(layout))
  with pytest.raises(ValueError, match=said):
    splash.mask(LENGTH, layout)
  with pytest.raises(ValueError, match=said):
    splash.gather_keys(jnp.zeros((1, 8)), layout)
  # One rank has whole rows.
  alone = inputs_of(layout_of("document_zigzag", 1))
  assert splash.adapt(alone).kv is alone.segment_ids


@pytest.mark.parametrize("ranks, least", [(1, 128), (2, 256)])
def test_rows_that_no_blocks_divide_are_refused(ranks, least):
  layout = layout_of("striped", ranks)
  splash.adapt(inputs_of(layout, lengths=((60,),), length=least))
  said = f"'splash' needs rows of a multiple of {least} positions"
  with pytest.raises(ValueError, match=said):
    splash.adapt(inputs_of(layout, lengths=((60,),), length=least + 64))


def test_illegal_masks_are_refused():
  with pytest.raises(ValueError, match="multiple of 8"):
    splash.mask(LENGTH + 4, ContextLayout("zigzag", 4))
  with pytest.raises(ValueError, match="at least 1 key, got 0"):
    splash.mask(LENGTH, sliding_window=0)


@pytest.mark.parametrize("name", _LAYOUTS)
def test_blocks_that_ranks_compute(name):
  """The numbers of docs/attention.md: cp 4, S 1024, blocks of 128."""
  expected = {
    "contiguous": [3, 7, 11, 15],
    "zigzag": [9, 9, 9, 9],
    "striped": [12, 12, 12, 12],
  }
  mask = splash.mask(1024, ContextLayout(name, 4))
  blocks = _kernel(mask, 4).fwd_mask_info.block_mask[0]
  by_rank = np.count_nonzero(np.split(np.asarray(blocks), 4), axis=(1, 2))
  assert by_rank.tolist() == expected[name]


def _peak(length, name):
  """Bytes that the host held at once, of a mask and its kernel."""
  tracemalloc.start()
  try:
    mask = splash.mask(length, ContextLayout(name, 2), sliding_window=1000)
    assert tracemalloc.get_traced_memory()[1] < 100 * length
    _kernel(mask, 2, blocks=512)
    return tracemalloc.get_traced_memory()[1]
  finally:
    tracemalloc.stop()


@pytest.mark.parametrize("name", _LAYOUTS)
def test_neither_mask_nor_kernel_makes_an_s_by_s_array_on_the_host(name):
  # A block at a time, and the few that differ. An S x S array is 67 MB.
  assert _peak(8192, name) < 12e6
