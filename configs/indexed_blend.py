r"""Two named sources by weight, for as long as neither must be repeated.

Command to run:

python launch/train.py --config=configs/indexed_blend.py --workdir=/tmp/blend

Other weights:

python launch/train.py --config=configs/indexed_blend.py:library=0.5,tests=0.5 \
  --workdir=/tmp/other_run
"""

import ml_collections as mlc

from hpgrain.config import base_config, parse_arg


def get_config(arg: str | None = None) -> mlc.ConfigDict:
  """Config for a blend."""
  arg = parse_arg(arg, library=0.7, tests=0.3, seq_length=256, runlocal=False)
  config = base_config()

  config.prepare = "embedded_example"
  tokenizer = config.model_assets.tokenizer
  tokenizer.pretrained_model_name_or_path = "{workdir}/data/tokenizer"

  # A name stands for the source in the order of its rows and in checkpoints,
  # so the files may move.
  config.dataset.data_path = tuple(
    dict(
      path=f"{{workdir}}/data/{name}_text_document", weight=weight, name=name
    )
    for name, weight in (("library", arg.library), ("tests", arg.tests))
  )
  config.dataset.data_config.seq_length = arg.seq_length
  config.dataset.data_config.split = "98, 1, 1"
  config.dataloader.epochs = 1

  config.training.global_batch_size = 8
  config.training.train_iters = 3 if arg.runlocal else 30
  config.training.eval_iters = 2

  # The devices of `tp` hold the same rows.
  if not arg.runlocal:
    config.mesh.cp = 2
    config.mesh.tp = 2
  return config
