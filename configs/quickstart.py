r"""A small model on the standard library's source text, two sources blended.

Command to run:

python launch/train.py --config=configs/quickstart.py --workdir=/tmp/hpgrain

The first run makes its own data in {workdir}/data, a tokenizer, two pairs of
token files and a pre-cut one that indexed_precut.py reads; the next finds them
there. `--config=configs/quickstart.py:runlocal` takes three steps, on one
device if there is no more.
"""

import ml_collections as mlc

from hpgrain.config import base_config, parse_arg


def get_config(arg: str | None = None) -> mlc.ConfigDict:
  """Config for the quick start."""
  arg = parse_arg(arg, seq_length=128, runlocal=False)
  config = base_config()

  config.prepare = "embedded_example"
  tokenizer = config.model_assets.tokenizer
  tokenizer.pretrained_model_name_or_path = "{workdir}/data/tokenizer"

  # Seven rows of the library to three of its tests.
  config.dataset.data_path = (
    *(0.7, "{workdir}/data/library_text_document"),
    *(0.3, "{workdir}/data/tests_text_document"),
  )
  config.dataset.data_config.seq_length = arg.seq_length
  config.dataset.data_config.split = "95, 5, 0"

  config.training.global_batch_size = 8
  config.training.train_iters = 3 if arg.runlocal else 120
  config.training.eval_iters = 2 if arg.runlocal else 20
  config.training.checkpoint_interval = 20

  # Eight devices, simulated where there are none: four shares of the rows, each
  # in two halves. -1 takes the devices that are left, however many.
  config.mesh.data = -1 if arg.runlocal else 4
  config.mesh.cp = 1 if arg.runlocal else 2
  return config
