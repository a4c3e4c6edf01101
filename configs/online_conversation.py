r"""Conversations, of which the assistant's turns are learnt, packed.

Command to run:

python launch/train.py --config=configs/online_conversation.py \
  --workdir=/tmp/conversation

The tokenizer of the example has no chat template, so one of ours is taken; with
a tokenizer that has one, leave `chat_template` out.
"""

import ml_collections as mlc

from hpgrain.config import base_config, parse_arg


def get_config(arg: str | None = None) -> mlc.ConfigDict:
  """Config for conversations."""
  arg = parse_arg(arg, runlocal=False)
  config = base_config()

  config.prepare = "embedded_example"
  tokenizer = config.model_assets.tokenizer
  tokenizer.pretrained_model_name_or_path = "{workdir}/data/tokenizer"

  config.model_assets.chat_template = "plain"

  config.dataset.kind = "online"
  config.dataset.data_path = "{workdir}/data/chats.jsonl"
  config.dataset.data_config.split = "95, 5, 0"
  config.dataset.data_config.data_cache_path = "{workdir}/index_cache"

  # Of a longer conversation the oldest turns are left out.
  config.data_transform.data_type = "conversation"
  config.data_transform.text_keys = "messages"
  config.data_transform.max_seq_len = 512
  config.data_transform.truncation = "left_turns"

  config.dataloader.type = "dynamic"

  config.training.global_batch_size = 8
  config.training.train_iters = 3 if arg.runlocal else 30
  config.training.eval_iters = 2
  config.training.checkpoint_interval = 10
  return config
