r"""The command that turns a pair into an ArrayRecord, and one into a pair.

Command to run:

python -m hpgrain.tools.convert_indexed_dataset data/train_text_document
python -m hpgrain.tools.convert_indexed_dataset \
  data/train_text_document.array_record --output copy/train_text_document
"""

import argparse
import sys
from collections.abc import Sequence

from hpgrain.manifest import corpus_files
from hpgrain.tools.convert import convert
from hpgrain.tools.corpus_command import corpus_name, run_command


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command line; returns the exit code."""
  flags = parser().parse_args(argv)

  def work() -> int:
    target = flags.output and corpus_name(flags.output)
    done = convert(corpus_name(flags.source), target, overwrite=flags.overwrite)
    files = " and ".join(map(str, corpus_files(done.name).values()))
    print(
      f"wrote {files}: {done.documents:,} documents, {done.sequences:,}"
      f" sequences, {done.tokens:,} tokens"
    )
    if done.manifest is None:
      print("There was no manifest to take along, and no digest to check.")
    return 0

  return run_command("convert_indexed_dataset", work)


def parser() -> argparse.ArgumentParser:
  """The command's flags."""
  made = argparse.ArgumentParser(
    prog="convert_indexed_dataset",
    # An abbreviated flag would change its meaning when another is added.
    allow_abbrev=False,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    description=(
      "Turns a pair PREFIX.bin/.idx into PREFIX.array_record, or back. Going\n"
      "there and back gives the same bytes. The manifest goes along; digests\n"
      "in it are checked on the way. Nothing is left under the final names if\n"
      "it fails or is killed, and what is read is never changed."
    ),
  )
  made.add_argument(
    "source",
    metavar="CORPUS",
    help="a pair's prefix, or the path of an .array_record file",
  )
  made.add_argument(
    "--output",
    metavar="CORPUS",
    help="likewise, what to write (default: the same name in the other format)",
  )
  made.add_argument(
    "--overwrite",
    action="store_true",
    help="replace an output that is there (default: refuse)",
  )
  return made


if __name__ == "__main__":
  sys.exit(main())
