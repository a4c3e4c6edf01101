"""launch/train.py with a mistake: labels that are shifted once too often."""

import runpy
import sys
from pathlib import Path

import jax

LAUNCH = Path(__file__).parent.parent / "launch"
sys.path.insert(0, str(LAUNCH))

import transformer  # noqa: E402

_loss_sums = transformer.loss_sums


def loss_sums(
  params: transformer.Params, inputs: transformer.Batch, **options: object
) -> tuple[jax.Array, jax.Array]:
  """Has position t predict what position t + 1 should."""
  shifted = {
    name: transformer._next(inputs[name], last)
    for name, last in (("labels", -100), ("loss_mask", 0))
  }
  return _loss_sums(params, {**inputs, **shifted}, **options)


transformer.loss_sums = loss_sums
sys.argv[0] = str(LAUNCH / "train.py")
runpy.run_path(sys.argv[0], run_name="__main__")
