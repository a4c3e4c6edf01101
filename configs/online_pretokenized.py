r"""Token ids out of JSON Lines, packed; nothing is tokenized.

Command to run:

python launch/train.py --config=configs/online_pretokenized.py \
  --workdir=/tmp/pretokenized

The tokenizer is there for its number of ids and its EOS alone; without one, set
`dataset.data_config.vocab_size`.
"""

import ml_collections as mlc

from hpgrain.config import base_config, parse_arg


def get_config(arg: str | None = None) -> mlc.ConfigDict:
  """Config for token ids."""
  arg = parse_arg(arg, max_seq_len=256, runlocal=False)
  config = base_config()

  config.prepare = "embedded_example"
  tokenizer = config.model_assets.tokenizer
  tokenizer.pretrained_model_name_or_path = "{workdir}/data/tokenizer"

  config.dataset.kind = "online"
  config.dataset.data_path = "{workdir}/data/tests_ids.jsonl"
  config.dataset.data_config.split = "95, 5, 0"
  config.dataset.data_config.data_cache_path = "{workdir}/index_cache"

  config.data_transform.data_type = "pretokenized"
  config.data_transform.max_seq_len = arg.max_seq_len

  config.dataloader.type = "dynamic"

  config.training.global_batch_size = 8
  config.training.train_iters = 3 if arg.runlocal else 30
  config.training.eval_iters = 2
  config.training.checkpoint_interval = 10
  return config
