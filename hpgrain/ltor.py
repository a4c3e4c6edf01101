"""Tokens and labels of a row in, Megatron's left-to-right fields out.

  tokens            4 5 0 6 0 7      end-of-document id 0
  position_ids      0 1 2 0 1 0      with reset_position_ids
  loss_mask         1 1 0 1 0 1      with eod_mask_loss
  attention_mask    a position sees those at or before it, with
                    reset_attention_mask none beyond the last 0 before it

For models written against Megatron's rows: its attention_mask is S x S for
every row and made on the host. A training run wants `attention` instead.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from hpgrain.records import (
  IGNORE_INDEX,
  LABELS,
  LOSS_MASK,
  POSITION_IDS,
  TOKENS,
)

ATTENTION_MASK = "attention_mask"


@dataclasses.dataclass(frozen=True)
class LtorOptions:
  """How `ltor_fields` makes its fields; its arguments but for the row.

  Attributes:
    eod_id: ends a document; None if no switch below needs it.
    reset_position_ids: whether positions count from 0 in each document.
    reset_attention_mask: whether a document sees none of those before it.
    eod_mask_loss: whether positions whose input is eod_id take no part in the
      loss.
  """

  eod_id: int | None
  reset_position_ids: bool
  reset_attention_mask: bool
  eod_mask_loss: bool

  def __post_init__(self) -> None:
    switches = {k: v for k, v in vars(self).items() if k != "eod_id"}
    if self.eod_id is None and any(switches.values()):
      needy = ", ".join(name for name, on in switches.items() if on)
      raise ValueError(
        f"{needy} needs the end-of-document id, and none is known: set"
        " model_assets.tokenizer, dataset.data_config.eod_id, or prepare the"
        " corpus with a tool that writes a manifest."
      )


def add_ltor_fields(
  row: Mapping[str, np.ndarray], options: LtorOptions
) -> dict[str, np.ndarray]:
  """Returns a row of {tokens, labels, ...} with Megatron's three fields."""
  made = ltor_fields(row[TOKENS], row[LABELS], **vars(options))
  return {**row, **made}


def ltor_fields(
  tokens: np.ndarray,
  labels: np.ndarray,
  *,
  eod_id: int | None,
  reset_position_ids: bool,
  reset_attention_mask: bool,
  eod_mask_loss: bool,
) -> dict[str, np.ndarray]:
  """Makes the fields that Megatron's GPT dataset adds to a row.

  Documents end where the ids say, not where the plan does, and the loss at a
  document's end is taken out by eod_mask_loss alone.

  Args:
    tokens: integers [S].
    labels: integers [S], IGNORE_INDEX where a token has none: a row's last
      token, if it has no extra one, and the padding after it. Labels between
      documents are not masked yet.
    eod_id: ends a document; None if no switch below needs it.
    reset_position_ids: whether positions count from 0 in each document.
    reset_attention_mask: whether a document sees none of those before it.
    eod_mask_loss: whether positions whose input is eod_id take no part in the
      loss.

  Returns:
    attention_mask bool[1, S, S], indexed [head, query, key], True = masked;
    loss_mask float32[S]; position_ids int32[S].

  Raises:
    ValueError: for tokens and labels of different shapes, or a switch that
      needs the end-of-document id where none is known.
  """
  tokens, labels = np.asarray(tokens), np.asarray(labels)
  if tokens.ndim != 1 or tokens.shape != labels.shape:
    raise ValueError(
      "ltor_fields takes the tokens and the labels of one row, [S] each; got"
      f" shapes {tokens.shape} and {labels.shape}."
    )
  LtorOptions(
    eod_id=eod_id,
    reset_position_ids=reset_position_ids,
    reset_attention_mask=reset_attention_mask,
    eod_mask_loss=eod_mask_loss,
  )
  place = np.arange(len(tokens), dtype=np.int32)
  has_label = labels != IGNORE_INDEX
  if eod_id is None:
    ends = np.zeros(len(tokens), bool)
  else:
    # Padding may look like the end-of-document id; it ends nothing. The last
    # token is the last label, or stands one behind the last that has one.
    last = np.max(place, where=has_label, initial=-1) + 1
    ends = (tokens == eod_id) & (place <= last)
  begins = np.zeros(len(tokens), bool)
  begins[1:] = ends[:-1]
  masked = place[None, :] > place[:, None]
  if reset_attention_mask:
    document = np.cumsum(begins)
    masked |= document[None, :] != document[:, None]
  loss_mask = has_label.astype(np.float32)
  if eod_mask_loss:
    loss_mask[ends] = 0.0
  position_ids = place
  if reset_position_ids:
    position_ids = place - np.maximum.accumulate(np.where(begins, place, 0))
  return {
    ATTENTION_MASK: masked[None],
    LOSS_MASK: loss_mask,
    POSITION_IDS: position_ids.astype(np.int32),
  }
