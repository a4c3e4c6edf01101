"""The batches of one split, as a trainer has them.

  iter(loader)                one run through them, with a state
  loader.model_inputs(batch)  what the model takes of one, inside `jit`

What a run through them does stands in `loader_iterator`.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import grain
import jax
from jax.sharding import NamedSharding

from hpgrain import batch, context_parallel, explicit_axes, reshard
from hpgrain.arguments import integer
from hpgrain.batch import AttentionOptions
from hpgrain.batches import Samples
from hpgrain.context_layout import ContextLayout
from hpgrain.loader_iterator import LoaderIterator, Spec, epochs_read
from hpgrain.records import SEGMENT_IDS


class Loader(grain.IterDataset):
  """The batches of one split; `iter(loader)` begins at its first row.

  Attributes:
    spec: what the batches are.
    attention: what `model_inputs` adds to one, with the batches' layout.
  """

  def __init__(
    self,
    spec: Spec,
    *,
    prefetch: int = 2,
    attention: AttentionOptions | None = None,
    asked_rows: int | None = None,
    num_workers: int = 0,
    sharding: NamedSharding | None = None,
  ):
    """Holds what makes the batches; nothing is read before iteration.

    Args:
      spec: the batches.
      prefetch: how many batches a thread keeps ready; 0 makes each one when
        it is asked for.
      attention: what `model_inputs` adds; default nothing. Its layout is the
        batches' own, whatever it says.
      asked_rows: rows the run asks for, in an order that depends on how many
        and leaves it to the first start: a restored state says for how many
        that was, and fewer are refused. None: nothing is left open.
      num_workers: processes that make batches beside this one, for
        transforms that are slow in Python; 0 makes them here.
      sharding: of the batches that are handed out; default the layout's.
        Where a layout of `reshard.batch_layout` differs from it, processes
        exchange rows when a batch is asked for.
    """
    super().__init__()
    self.spec = spec
    self._prefetch = integer("prefetch", prefetch, minimum=0)
    self._num_workers = integer("num_workers", num_workers, minimum=0)
    self.attention = dataclasses.replace(
      attention or AttentionOptions(), layout=spec.layout.context
    )
    self._asked_rows = asked_rows
    self._sharding = sharding

  def __iter__(self) -> "LoaderIterator":
    """Returns a fresh iterator."""
    return LoaderIterator(
      self.spec,
      prefetch=self._prefetch,
      asked_rows=self._asked_rows,
      num_workers=self._num_workers,
      exchange=self._exchange,
    )

  @property
  def sharding(self) -> NamedSharding:
    """Where the fields of a batch lie, [rows, positions]."""
    return self._sharding or self.spec.layout.sharding

  @functools.cached_property
  def _exchange(self) -> reshard.Exchange | None:
    """What brings the rows there, if they are made elsewhere."""
    return reshard.exchange_between(self.spec.layout.sharding, self.sharding)

  def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
    """Refuses: rows come in one order, which a slice would break."""
    del sl, sequential_slice
    raise ValueError(
      "A loader is not sliced, as by mp_prefetch: every process has its part of"
      " each batch already. Use dataloader.num_workers for worker processes."
    )

  @property
  def samples(self) -> Samples:
    """The rows the batches are made of."""
    return self.spec.samples

  @property
  def source_names(self) -> tuple[str, ...]:
    """The sources that `source_ids` of a batch count, in their order."""
    return tuple(source.name for source in self.spec.samples.sources)

  @property
  def labels_are_shifted(self) -> bool:
    """Whether labels[t] is the target at t; if not, the model must shift."""
    return self.spec.options.labels_are_shifted

  @property
  def attention_mode(self) -> str:
    """What `model_inputs` adds for attention: see `AttentionOptions`."""
    return self.attention.attention_mode

  @property
  def vocab_size(self) -> int | None:
    """Every id in a batch lies below it; None where it is not known."""
    return self.spec.samples.vocab_size

  @property
  def context_layout(self) -> ContextLayout:
    """Which position of its row each slot of a batch holds."""
    return self.spec.layout.context

  def row_positions(self, fields: Mapping[str, jax.Array]) -> jax.Array:
    """Returns int32[1 or rows, S], the position of each slot; inside `jit`.

    What a model makes of a batch, [rows, S, ...], is put in the order of the
    row by `context_parallel.in_row_order`.
    """
    return explicit_axes.made_of_batch(
      lambda ids: context_parallel.row_positions(
        ids[SEGMENT_IDS], self.context_layout
      ),
      {SEGMENT_IDS: fields[SEGMENT_IDS]},
      self.sharding,
    )

  def model_inputs(self, fields: Mapping[str, jax.Array]) -> dict[str, Any]:
    """Returns what the model takes of a batch; call it inside `jit`.

    `batch.model_inputs` with what the configuration asks for.
    """
    return explicit_axes.made_of_batch(
      lambda fields: batch.model_inputs(fields, **vars(self.attention)),
      fields,
      self.sharding,
    )

  @property
  def num_steps(self) -> int | None:
    """Batches a fresh iterator yields; None = endless, or not known.

    Known from the data alone, so it is the same on every process; of records
    that are tokenized while training it measures all of them. Of row streams
    it is not known.
    """
    spec = self.spec
    if spec.end is None:
      return None
    rows = max(spec.end - spec.first_row, 0)
    num_rows = spec.layout.shape[0]
    return -(-rows // num_rows) if spec.pad_last else rows // num_rows

  def epochs(self, rows: int) -> dict[str, float]:
    """Returns how often each source was read in the first `rows` rows."""
    return epochs_read(self.spec.samples, rows)
