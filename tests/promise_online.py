"""The promise for data that is tokenized while training, as a function.

`check` runs the legs of a recipe one after another, each going on from the
state that the one before left, and raises `Mismatch` at the first row that is
not the slow reference's. As a script it does so with many random cases:

  python tests/promise_online.py --cases 2000
"""

import argparse
import collections
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import reference_online as reference
from online_recipes import Leg, NoRows, Recipe
from promise_plans import check_plans
from promise_streams import check_streams


def check(recipe: Recipe, legs: Sequence[Leg], folder: Path) -> int:
  """Runs the legs; returns how many batches were compared.

  Raises:
    Mismatch: at the first row that is not the reference's.
    NoRows: if there is nothing to compare.
  """
  try:
    if recipe.mode == "plans":
      return check_plans(recipe, legs, folder)
    return check_streams(recipe, legs, folder)
  except reference.TooFar as error:
    raise NoRows(str(error)) from error


def check_many(mode: str, cases: int, seed: int) -> None:
  """Draws cases and checks them; says how many were worth it."""
  import hypothesis
  from online_cases import cases as strategy

  seen: collections.Counter[str] = collections.Counter()

  @hypothesis.seed(seed)
  @hypothesis.settings(
    max_examples=cases,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(hypothesis.HealthCheck),
  )
  @hypothesis.given(strategy(mode=mode))
  def run(case: tuple[Recipe, list[Leg]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
      try:
        seen["batches"] += check(*case, Path(folder))
      except NoRows:
        seen["without rows"] += 1
        hypothesis.reject()
    seen["cases"] += 1

  began = time.monotonic()
  run()
  seconds = time.monotonic() - began
  print(f"{mode}: {dict(seen)}, seed {seed}, {seconds:.0f} s", flush=True)


def main() -> None:
  """Checks many cases."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--cases", type=int, default=2000, help="of all modes")
  parser.add_argument("--seed", type=int, default=random.randrange(2**32))
  parser.add_argument("--mode", choices=("plans", "streams"))
  arguments = parser.parse_args()
  modes = [arguments.mode] if arguments.mode else ["plans", "streams"]
  for mode in modes:
    check_many(mode, -(-arguments.cases // len(modes)), arguments.seed)


if __name__ == "__main__":
  main()
