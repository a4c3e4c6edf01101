r"""Documents in Megatron-core's order, to go on with a run or to compare.

Command to run:

python launch/train.py --config=configs/megatron.py --workdir=/tmp/megatron

In the order of a Megatron-LM run with --seed 1234 --split 99,1,0
--train-samples 1000000 --seq-length 4096 --global-batch-size 256 --eval-iters
10 --eval-interval 1000, for STEPS steps from its consumed sample N on:

  --config=configs/megatron.py:seq_length=4096 --workdir=/runs/1 \
  --config.prepare=none \
  --config.dataset.data_path=/data/corpus_text_document \
  --config.model_assets.tokenizer.pretrained_model_name_or_path=/data/tok \
  --config.dataset.data_config.split=99,1,0 --config.training.seed=1234 \
  --config.training.train_samples=1000000 \
  --config.training.train_iters=STEPS --config.dataloader.consumed_samples=N \
  --config.training.global_batch_size=256 --config.training.eval_iters=10 \
  --config.training.eval_interval=1000

docs/megatron.md says what is equal to Megatron and what is not.
"""

import ml_collections as mlc

from hpgrain.config import base_config, parse_arg


def get_config(arg: str | None = None) -> mlc.ConfigDict:
  """Config for Megatron's order."""
  arg = parse_arg(arg, seq_length=256, runlocal=False)
  config = base_config()

  config.prepare = "embedded_example"
  tokenizer = config.model_assets.tokenizer
  tokenizer.pretrained_model_name_or_path = "{workdir}/data/tokenizer"

  config.dataset.data_path = "{workdir}/data/library_text_document"
  data = config.dataset.data_config
  data.order = "megatron"
  data.seq_length = arg.seq_length
  data.split = "98, 2, 0"
  data.data_cache_path = "{workdir}/index_cache"

  # As Megatron has it by default: documents of a row see each other, and the
  # last token of one learns to predict the first of the next.
  config.get_batch.reset_attention_mask = False
  config.get_batch.mask_boundary_labels = False

  config.training.global_batch_size = 8
  config.training.train_iters = 3 if arg.runlocal else 30
  config.training.eval_iters = 2
  return config
