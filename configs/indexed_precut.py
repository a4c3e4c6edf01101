r"""Records that were cut to the row's length when they were prepared.

Command to run:

python launch/train.py --config=configs/indexed_precut.py --workdir=/tmp/precut

The records are those of `offline_preparation --pack-to-seq-len 256`: 257
tokens each, so `seq_length` is no choice here.
"""

import ml_collections as mlc

from hpgrain.config import base_config, parse_arg


def get_config(arg: str | None = None) -> mlc.ConfigDict:
  """Config for pre-cut records."""
  arg = parse_arg(arg, runlocal=False)
  config = base_config()

  config.prepare = "embedded_example"
  tokenizer = config.model_assets.tokenizer
  tokenizer.pretrained_model_name_or_path = "{workdir}/data/tokenizer"

  config.dataset.data_path = "{workdir}/data/library_packed_text_document"
  config.dataset.data_config.is_dataset_from_mr = True
  config.dataset.data_config.seq_length = 256
  config.dataset.data_config.split = "98, 1, 1"

  config.training.global_batch_size = 8
  config.training.train_iters = 3 if arg.runlocal else 30
  config.training.eval_iters = 2
  return config
