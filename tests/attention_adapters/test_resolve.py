"""Adapters by name, and a user's function by the arguments of the reference."""

import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attention_cases import WINDOW, inputs_of, layout_of

from hpgrain.attention_adapters import ADAPTERS, resolve
from hpgrain.batch import model_inputs
from hpgrain.context_layout import ROW_ORDER

_LAYOUTS = ("contiguous", "zigzag", "striped", "document_zigzag")


def _everything(**keywords):
  return keywords


def test_names_are_adapters():
  assert set(ADAPTERS) == {
    *("splash", "pallas_gpu", "cudnn", "transformer_engine"),
    "context_parallel",
  }
  for name, adapter in ADAPTERS.items():
    assert resolve(name) is adapter
    assert resolve(adapter) is adapter
  own = resolve(_everything)
  assert resolve(own) is own


@pytest.mark.parametrize(
  "name, said",
  [
    ("splahs", r"one of \('splash', .*'; got 'splahs'\. Did you mean 'splash'"),
    ("Cudnn", "got 'Cudnn'. Did you mean 'cudnn'"),
    ("ring", r"'package\.module:function'; got 'ring'\.$"),
    ("numpy:", r"is written 'package\.module:function' .* got 'numpy:'"),
    (":sum", "got ':sum'"),
    ("numpyy:sum", "'numpyy:sum': there is no module 'numpyy'"),
    ("numpy.no.such:sum", r"there is no module 'numpy\.no'"),
    ("numpy:summ", "module 'numpy' has no 'summ'. Did you mean 'sum'"),
    ("numpy:pi", "'numpy:pi' must be a function .* it is a float"),
    (".numpy:sum", r"with the module's whole name; got '\.numpy:sum'"),
    ("os:getcwd", r"'os:getcwd' is called with .* its own are \(\)"),
  ],
)
def test_what_is_no_adapter_is_refused(name, said):
  with pytest.raises(ValueError, match=said):
    resolve(name)


def test_a_function_must_take_every_argument():
  def without_window(*, cu_seq_lens, local_input_shape, cp_rank, cp_size):
    raise AssertionError

  said = r"'.*without_window' is called .*: got an unexpected .* as \*\*others"
  with pytest.raises(ValueError, match=said):
    resolve(without_window)


class _Odd:
  def __eq__(self, other):
    raise TypeError("no comparing")

  __hash__ = None


@pytest.mark.parametrize("made", [np.zeros(3), _Odd(), 3, None, ["splash"]])
def test_what_is_no_function_is_refused(made):
  with pytest.raises(ValueError, match="must be a function that takes"):
    resolve(made)


@pytest.mark.parametrize("made", [None, {"w": 3}, {}, [np.zeros(3)], "ends"])
def test_a_function_that_returns_no_array_is_refused(made):
  adapter = resolve(lambda **keywords: made)
  with pytest.raises(
    ValueError, match=r"returned .*, which holds no JAX array"
  ):
    adapter(inputs_of())


def test_a_row_of_too_many_segments_has_no_ends():
  # The first row has 4 segments with its padding, the second 3.
  for most, found in ((4, [0, 104, 168, 234, 256]), (3, [-1] * 4)):
    ends = inputs_of(max_segments=most).cu_seq_lens
    assert ends[0].tolist() == found
    assert ends[1, :4].tolist() == [0, 120, 250, 256]


@pytest.mark.parametrize("name", _LAYOUTS)
def test_a_function_gets_exactly_the_references_arguments(name):
  layout = layout_of(name, 2)
  found = resolve(_everything)(inputs_of(layout, window=WINDOW))
  lens = found.pop("cu_seq_lens")
  # Whole rows in their order, in every layout.
  assert lens.tolist() == [
    [0, 104, 168, 234, 256, 256],
    [0, 120, 250, 256, 256, 256],
  ]
  assert lens.dtype == np.int32
  assert found == {
    "local_input_shape": (2, 128),
    "cp_rank": None,
    "cp_size": 2,
    "cp_algorithm": name,
    "causal": True,
    "sliding_window": WINDOW,
  }


def test_a_device_alone_is_rank_0():
  found = resolve(_everything)(inputs_of())
  assert (found["cp_rank"], found["cp_size"]) == (0, 1)
  assert found["local_input_shape"] == (2, 256)
  assert found["sliding_window"] is None


def _batch():
  inputs = inputs_of()
  return {
    "segment_ids": inputs.segment_ids,
    "position_ids": inputs.position_ids,
    "input_ids": inputs.segment_ids,
    "labels": inputs.segment_ids,
  }


@pytest.fixture
def module(tmp_path, monkeypatch):
  (tmp_path / "own_adapter.py").write_text(
    textwrap.dedent(
      """
      def ends(*, cu_seq_lens, **others):
        return {"ends": cu_seq_lens[:, 1:]}
      """
    )
  )
  (tmp_path / "broken_adapter.py").write_text("import no_such_module_at_all\n")
  monkeypatch.syspath_prepend(tmp_path)
  yield
  for name in ("own_adapter", "broken_adapter"):
    sys.modules.pop(name, None)


@pytest.mark.usefixtures("module")
def test_a_batch_is_made_for_a_function_of_a_module():
  made = jax.jit(
    lambda batch: model_inputs(
      batch,
      attention_mode="compressed",
      adapter="own_adapter:ends",
      max_segments=5,
    )
  )(_batch())
  assert made["packed_seq_params"]["ends"][0].tolist() == [
    *(104, 168, 234, 256, 256)
  ]


@pytest.mark.usefixtures("module")
def test_what_goes_wrong_inside_a_module_is_shown():
  with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
    resolve("broken_adapter:ends")


def test_a_window_reaches_an_adapter_in_keys():
  for keys, window in (("inclusive", 3), ("reference", 4)):
    made = model_inputs(
      _batch(),
      attention_mode="compressed",
      adapter=_everything,
      sliding_window=3,
      window_keys=keys,
    )
    assert made["packed_seq_params"]["sliding_window"] == window
    assert "swa_mask" not in made


def _avals(jaxpr):
  """Every array that a jaxpr or one inside it makes, and its constants."""
  yield from (var.aval for var in (*jaxpr.constvars, *jaxpr.invars))
  for equation in jaxpr.eqns:
    yield from (var.aval for var in equation.outvars)
    for value in equation.params.values():
      for inner in jax.tree.leaves(
        value, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")
      ):
        if hasattr(inner, "jaxpr"):
          yield from _avals(inner.jaxpr)
        elif hasattr(inner, "eqns"):
          yield from _avals(inner)


def _largest(function, inputs):
  """Elements of the largest array that a function makes, per position."""

  def traced(segment_ids, position_ids):
    other = type(inputs)(
      segment_ids,
      position_ids,
      inputs.layout,
      inputs.max_segments,
      inputs.sliding_window,
    )
    return function(other)

  closed = jax.make_jaxpr(traced)(inputs.segment_ids, inputs.position_ids)
  sizes = [aval.size for aval in _avals(closed.jaxpr)]
  sizes += [np.size(const) for const in closed.consts]
  return max(sizes) / inputs.segment_ids.shape[1]


_SERVED = [
  *(("splash", name, 64) for name in _LAYOUTS[:3]),
  ("pallas_gpu", "one", 64),
  ("cudnn", "one", 64),
  ("cudnn", "one", 2),
  ("transformer_engine", "striped", 64),
  ("transformer_engine", "zigzag", 2),
  *(("context_parallel", name, 64) for name in _LAYOUTS),
  # Without a limit of segments, too.
  *((_everything, name, 4096) for name in _LAYOUTS),
]


@pytest.mark.parametrize("adapter, name, most", _SERVED)
def test_nothing_that_is_s_by_s_is_made(adapter, name, most):
  layout = ROW_ORDER if name == "one" else layout_of(name, 2)
  inputs = inputs_of(layout, length=4096, max_segments=most)
  call = resolve(adapter)
  largest = _largest(
    lambda inputs: [
      x for x in jax.tree.leaves(call(inputs)) if isinstance(x, jax.Array)
    ],
    inputs,
  )
  # Two rows, and numbers of a segment beside each position.
  assert largest <= 8


def test_what_is_s_by_s_is_seen():
  inputs = inputs_of(length=512)
  square = lambda inputs: (  # noqa: E731
    inputs.segment_ids[:, :, None] == inputs.segment_ids[:, None]
  )
  assert _largest(square, inputs) == 2 * 512
  inside = lambda inputs: jax.lax.map(  # noqa: E731
    lambda row: jnp.sum(row[:, None] == row), inputs.segment_ids
  )
  assert _largest(inside, inputs) == 512
