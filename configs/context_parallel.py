r"""Packed documents over context-parallel devices, by ring attention.

Command to run:

python launch/train.py --config=configs/context_parallel.py --workdir=/tmp/ring

Every document is split evenly over `cp`, whatever else is in its row, and keys
travel from rank to rank (launch/ring_attention.py).
"""

import ml_collections as mlc

from hpgrain.config import base_config, parse_arg


def get_config(arg: str | None = None) -> mlc.ConfigDict:
  """Config for ring attention on packed documents."""
  arg = parse_arg(arg, seq_length=256, runlocal=False)
  config = base_config()

  config.prepare = "embedded_example"
  tokenizer = config.model_assets.tokenizer
  tokenizer.pretrained_model_name_or_path = "{workdir}/data/tokenizer"

  config.dataset.data_path = "{workdir}/data/library_text_document"
  config.dataset.data_config.seq_length = arg.seq_length
  config.dataset.data_config.split = "98, 2, 0"

  config.dataloader.type = "dynamic"
  config.dataloader.overlong = "split"
  # 2 x cp for any cp up to 8. It shapes rows, so it outlives a change of cp.
  config.dataloader.segment_multiple = 16

  config.get_batch.context_parallel_layout = "document_zigzag"
  config.model.attention = "ring"

  config.training.global_batch_size = 8
  config.training.train_iters = 3 if arg.runlocal else 30
  config.training.eval_iters = 2
  config.training.checkpoint_interval = 10

  config.mesh.data = -1 if arg.runlocal else 2
  config.mesh.cp = 1 if arg.runlocal else 2
  config.mesh.tp = 1 if arg.runlocal else 2
  return config
