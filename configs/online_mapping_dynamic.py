r"""Text that is tokenized while training, read by number, packed.

Command to run:

python launch/train.py --config=configs/online_mapping_dynamic.py \
  --workdir=/tmp/mapping_dynamic

The texts are tokenized once, before the first step, to know their lengths, and
again when their rows are read; `data_cache_path` keeps the lengths for the next
run. `--config.dataset.data_config.keep_tokens=true` keeps the tokens as well.

With files of your own, and their tokenizer:

  --config.prepare=none --config.dataset.data_path=/data/corpus.jsonl \
  --config.model_assets.tokenizer.pretrained_model_name_or_path=/data/tokenizer
"""

import ml_collections as mlc

from hpgrain.config import base_config, parse_arg


def get_config(arg: str | None = None) -> mlc.ConfigDict:
  """Config for text read by number, packed."""
  arg = parse_arg(arg, max_seq_len=256, runlocal=False)
  config = base_config()

  config.prepare = "embedded_example"
  tokenizer = config.model_assets.tokenizer
  tokenizer.pretrained_model_name_or_path = "{workdir}/data/tokenizer"

  config.dataset.kind = "online"
  config.dataset.data_path = "{workdir}/data/library.jsonl"
  config.dataset.data_config.split = "98, 2, 0"
  config.dataset.data_config.data_cache_path = "{workdir}/index_cache"

  config.data_transform.data_type = "plaintext"
  config.data_transform.text_keys = "text"
  config.data_transform.max_seq_len = arg.max_seq_len

  config.dataloader.type = "dynamic"

  config.training.global_batch_size = 8
  config.training.train_iters = 3 if arg.runlocal else 30
  config.training.eval_iters = 2
  config.training.checkpoint_interval = 10
  return config
