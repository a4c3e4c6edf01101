r"""Rows packed of whole documents of a tokenized corpus.

Command to run:

python launch/train.py --config=configs/indexed_packed.py --workdir=/tmp/packed

No document is cut, unless it is longer than a row, and none is lost.
"""

import ml_collections as mlc

from hpgrain.config import base_config, parse_arg


def get_config(arg: str | None = None) -> mlc.ConfigDict:
  """Config for whole documents."""
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

  config.training.global_batch_size = 8
  config.training.train_iters = 3 if arg.runlocal else 30
  config.training.eval_iters = 2
  config.training.checkpoint_interval = 10
  return config
