"""The promise for data that is tokenized while training, as a function.

`check` runs the legs of a recipe one after another, each going on from the
state that the one before left, and raises `Mismatch` at the first row that is
not the slow reference's. As a script it does so with many random cases:

  python tests/promise_online.py --cases 2000
"""

import argparse
import collections
import os
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import reference_online as reference
from online_recipes import Leg, NoRows, Recipe
from promise_plans import check_plans
from promise_streams import check_streams

# Parts of hpgrain by themselves, and what `build` puts together.
KINDS = ("plans", "streams", "build-plans", "build-streams")


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


def check_many(kind: str, cases: int, seed: int) -> None:
  """Draws cases and checks them; says how many were worth it."""
  import hypothesis
  import online_cases
  from promise_build import check_build

  built, _, mode = kind.rpartition("-")
  strategy = online_cases.build_cases if built else online_cases.cases
  run_one = check_build if built else check
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
  def run(case: tuple[Any, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder:
      try:
        seen["batches"] += run_one(*case, Path(folder))
      except NoRows:
        seen["without rows"] += 1
        hypothesis.reject()
    seen["cases"] += 1

  began = time.monotonic()
  run()
  seconds = time.monotonic() - began
  print(f"{kind}: {dict(seen)}, seed {seed}, {seconds:.0f} s", flush=True)


def main() -> None:
  """Checks many cases."""
  # As `conftest` does for the tests: eight devices, no accelerator.
  os.environ["JAX_PLATFORMS"] = "cpu"
  os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--cases", type=int, default=2000, help="of all kinds")
  parser.add_argument("--seed", type=int, default=random.randrange(2**32))
  parser.add_argument("--kind", choices=KINDS, help="default: each of them")
  arguments = parser.parse_args()
  kinds = [arguments.kind] if arguments.kind else KINDS
  for kind in kinds:
    check_many(kind, -(-arguments.cases // len(kinds)), arguments.seed)


if __name__ == "__main__":
  main()
