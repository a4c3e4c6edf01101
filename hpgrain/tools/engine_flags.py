"""The flags of engines and shards, and command lines that name them.

[merge] --flag value ... [-- --runner=DataflowRunner --project=p ...]
^                            ^
what to do, first            pipeline options, as Beam's users write them
"""

import argparse
import sys
from collections.abc import Sequence

from hpgrain.tools.options import RUNNERS

MERGE = "merge"
# For the end of a command's help.
EPILOG = (
  "Several machines: each does its shard, then one run with the word merge\n"
  "before the same flags makes the pairs:\n"
  "  %(prog)s FLAGS --num-shards 3 --shard-index 0   (and 1, and 2)\n"
  "  %(prog)s merge FLAGS --num-shards 3\n\n"
  "A Beam pipeline; what follows -- are its own options:\n"
  "  %(prog)s FLAGS --runner beam -- --runner=DataflowRunner --project=P ..."
)


def add_engine_flags(group: argparse._ArgumentGroup) -> None:
  """Adds what says where the work is done."""
  group.add_argument(
    "--runner",
    choices=RUNNERS,
    default="local",
    help="what does the work: processes of this machine, an Apache Beam"
    " pipeline, which takes the options that follow -- (none: on this machine),"
    " or the tasks of a Ray cluster. Output does not depend on it (default:"
    " local)",
  )
  group.add_argument(
    "--ray-address",
    metavar="ADDRESS",
    help="the Ray cluster for --runner ray (default: that of the variable"
    " RAY_ADDRESS; without it one is started on this machine)",
  )
  group.add_argument(
    "--shard-index",
    type=int,
    default=0,
    metavar="I",
    help="which part of the work to do, from 0, of --num-shards",
  )
  group.add_argument(
    "--num-shards",
    type=int,
    default=1,
    metavar="N",
    help="how many runs share the work, in one work folder; when all have"
    " ended, merge makes the pairs (default: 1)",
  )
  group.add_argument(
    "--merge-only",
    action="store_true",
    help="the same as the word merge before all flags: make the pairs of the"
    " work that all shards have done",
  )


def parse_flags(
  parser: argparse.ArgumentParser, argv: Sequence[str] | None = None
) -> argparse.Namespace:
  """Parses a command line; the process's own if there is none.

  Args:
    parser: of the command, with the flags of `add_engine_flags`.
    argv: arguments, without the command's name.

  Returns:
    The flags, with `merge_only` on where the first word is merge, and
    `beam_options`, the arguments that follow --.
  """
  arguments = list(sys.argv[1:] if argv is None else argv)
  at = arguments.index("--") if "--" in arguments else len(arguments)
  beam_options = arguments[at + 1 :]
  arguments = arguments[:at]
  merge = arguments[:1] == [MERGE]
  flags = parser.parse_args(arguments[merge:])
  flags.beam_options = tuple(beam_options)
  flags.merge_only |= merge
  return flags
