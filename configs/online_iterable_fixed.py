r"""Questions and answers, read in turn, two of them a row.

Command to run:

python launch/train.py --config=configs/online_iterable_fixed.py \
  --workdir=/tmp/iterable_fixed
"""

import ml_collections as mlc

from hpgrain.config import base_config, parse_arg


def get_config(arg: str | None = None) -> mlc.ConfigDict:
  """Config for text read in turn, two examples a row."""
  arg = parse_arg(arg, runlocal=False)
  config = base_config()

  config.prepare = "embedded_example"
  tokenizer = config.model_assets.tokenizer
  tokenizer.pretrained_model_name_or_path = "{workdir}/data/tokenizer"

  config.dataset.kind = "online"
  config.dataset.data_path = "{workdir}/data/questions.jsonl"
  config.dataset.data_config.dataset_type = "iterable"
  config.dataset.data_config.shuffle_buffer_size = 1000

  config.data_transform.data_type = "plaintext"
  config.data_transform.template = "{question}\n{answer}"
  config.data_transform.max_seq_len = 256

  # Two examples of at most 256 positions: 8 rows of 512.
  config.dataloader.type = "fixed"
  config.dataloader.num_streams = 8
  config.training.micro_batch_size = 2

  config.training.global_batch_size = 16
  config.training.train_iters = 3 if arg.runlocal else 30
  config.training.eval_iters = 2
  config.training.checkpoint_interval = 10
  return config
