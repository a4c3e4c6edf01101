r"""Text that is read in turn and tokenized while training, packed.

Command to run:

python launch/train.py --config=configs/online_iterable_dynamic.py \
  --workdir=/tmp/iterable_dynamic

Nothing is known of a text before it is read, so rows come out of eight streams,
each of which packs its share of the records; a checkpoint says where each is.
"""

import ml_collections as mlc

from hpgrain.config import base_config, parse_arg


def get_config(arg: str | None = None) -> mlc.ConfigDict:
  """Config for text read in turn, packed."""
  arg = parse_arg(arg, max_seq_len=256, runlocal=False)
  config = base_config()

  config.prepare = "embedded_example"
  tokenizer = config.model_assets.tokenizer
  tokenizer.pretrained_model_name_or_path = "{workdir}/data/tokenizer"

  config.dataset.kind = "online"
  config.dataset.train_data_path = "{workdir}/data/library.jsonl"
  config.dataset.valid_data_path = "{workdir}/data/tests.jsonl"
  config.dataset.data_config.dataset_type = "iterable"
  config.dataset.data_config.shuffle_buffer_size = 100

  config.data_transform.data_type = "plaintext"
  config.data_transform.text_keys = "text"
  config.data_transform.max_seq_len = arg.max_seq_len

  config.dataloader.type = "dynamic"
  config.dataloader.num_streams = 8

  config.training.global_batch_size = 8
  config.training.train_iters = 3 if arg.runlocal else 30
  config.training.eval_iters = 2
  config.training.checkpoint_interval = 10
  return config
