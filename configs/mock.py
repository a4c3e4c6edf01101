r"""Made-up rows: the whole way to the devices without a file.

Command to run:

python launch/train.py --config=configs/mock.py --workdir=/tmp/mock
"""

import ml_collections as mlc

from hpgrain.config import base_config, parse_arg


def get_config(arg: str | None = None) -> mlc.ConfigDict:
  """Config for a dry run."""
  arg = parse_arg(arg, seq_length=64, vocab_size=1024, runlocal=False)
  config = base_config()

  config.dataset.data_config.mock_data = True
  config.dataset.data_config.seq_length = arg.seq_length
  config.dataset.data_config.vocab_size = arg.vocab_size

  config.training.global_batch_size = 8
  config.training.train_iters = 3 if arg.runlocal else 20
  config.training.eval_iters = 2
  return config
