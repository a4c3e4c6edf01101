"""A configuration in, how the fields of its batches are made out."""

import ml_collections as mlc

from hpgrain.fields import FieldOptions


def field_options(config: mlc.ConfigDict, eod_id: int | None) -> FieldOptions:
  """Returns how the fields of any kind of rows are made.

  Args:
    config: what `config.check` returned.
    eod_id: the end-of-document id, where it is known.
  """
  get_batch = config.get_batch
  ltor = config.dataset.data_config.create_ltor_fields_in_dataloader
  return FieldOptions(
    labels_are_shifted=get_batch.labels_are_shifted,
    # Megatron has no such mask.
    mask_boundary_labels=get_batch.mask_boundary_labels and not ltor,
    eod_mask_loss=get_batch.eod_mask_loss,
    eod_id=eod_id,
    reset_position_ids=get_batch.reset_position_ids,
    reset_attention_mask=get_batch.reset_attention_mask,
    source_ids=get_batch.source_ids,
  )
