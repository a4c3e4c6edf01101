r"""Two sources of text by weight, tokenized while training, packed.

Command to run:

python launch/train.py --config=configs/online_blend.py \
  --workdir=/tmp/online_blend

Records take turns by weight; how many tokens of each a batch has also depends
on how long they are.
"""

import ml_collections as mlc

from hpgrain.config import base_config, parse_arg


def get_config(arg: str | None = None) -> mlc.ConfigDict:
  """Config for a blend of texts."""
  arg = parse_arg(arg, library=0.7, tests=0.3, max_seq_len=256, runlocal=False)
  config = base_config()

  config.prepare = "embedded_example"
  tokenizer = config.model_assets.tokenizer
  tokenizer.pretrained_model_name_or_path = "{workdir}/data/tokenizer"

  config.dataset.kind = "online"
  # A name stands for the source in the order of its records and in checkpoints,
  # so the files may move.
  config.dataset.data_path = tuple(
    dict(path=f"{{workdir}}/data/{name}.jsonl", weight=weight, name=name)
    for name, weight in (("library", arg.library), ("tests", arg.tests))
  )
  config.dataset.data_config.split = "98, 2, 0"
  config.dataset.data_config.data_cache_path = "{workdir}/index_cache"

  config.data_transform.data_type = "plaintext"
  config.data_transform.max_seq_len = arg.max_seq_len

  config.dataloader.type = "dynamic"

  config.training.global_batch_size = 8
  config.training.train_iters = 3 if arg.runlocal else 30
  config.training.eval_iters = 2
  config.training.checkpoint_interval = 10
  return config
