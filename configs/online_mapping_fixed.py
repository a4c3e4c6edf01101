r"""Questions and answers, read by number, four of them a row.

Command to run:

python launch/train.py --config=configs/online_mapping_fixed.py \
  --workdir=/tmp/mapping_fixed

A record must give one example here, so each is shorter than `max_seq_len`; rows
are as long as the longest of a batch needs, in one of a few lengths.
"""

import ml_collections as mlc

from hpgrain.config import base_config, parse_arg


def get_config(arg: str | None = None) -> mlc.ConfigDict:
  """Config for text read by number, four examples a row."""
  arg = parse_arg(arg, runlocal=False)
  config = base_config()

  config.prepare = "embedded_example"
  tokenizer = config.model_assets.tokenizer
  tokenizer.pretrained_model_name_or_path = "{workdir}/data/tokenizer"

  config.dataset.kind = "online"
  config.dataset.data_path = "{workdir}/data/questions.jsonl"
  config.dataset.data_config.split = "98, 2, 0"
  config.dataset.data_config.data_cache_path = "{workdir}/index_cache"

  config.data_transform.data_type = "plaintext"
  config.data_transform.template = "{question}\n{answer}"
  config.data_transform.max_seq_len = 256

  # Four examples of at most 256 positions: 8 rows of at most 1,024.
  config.dataloader.type = "fixed"
  config.training.micro_batch_size = 4
  config.dataloader.length_buckets = (128, 256, 512, 1024)

  config.training.global_batch_size = 32
  config.training.train_iters = 3 if arg.runlocal else 30
  config.training.eval_iters = 2
  config.training.checkpoint_interval = 10
  return config
