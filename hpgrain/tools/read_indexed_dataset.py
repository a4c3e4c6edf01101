r"""The command that shows what a tokenized corpus holds, and verifies it.

Command to run:

python -m hpgrain.tools.read_indexed_dataset data/train_text_document
python -m hpgrain.tools.read_indexed_dataset data/train_text_document --verify
"""

import argparse
import contextlib
import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Any

from hpgrain.manifest import parse_manifest
from hpgrain.tokenizer import TokenizerInfo, load_tokenizer, tokenizer_info
from hpgrain.tools.corpus_command import corpus_name, run_command
from hpgrain.tools.describe import describe
from hpgrain.tools.describe_text import description_text, verification_text
from hpgrain.tools.verify import verify


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command line; returns the exit code."""
  flags = parser().parse_args(argv)
  # A text may hold what the terminal cannot show.
  sys.stdout.reconfigure(errors="backslashreplace")
  work = _verify if flags.verify else _describe
  return run_command("read_indexed_dataset", lambda: work(flags))


def parser() -> argparse.ArgumentParser:
  """The command's flags."""
  made = argparse.ArgumentParser(
    prog="read_indexed_dataset",
    # An abbreviated flag would change its meaning when another is added.
    allow_abbrev=False,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    description=(
      "Shows what a tokenized corpus holds: counts, lengths of documents,\n"
      "where EODs are, a few documents, and its manifest. With --verify it\n"
      "reads all of it and tells every problem that can be found."
    ),
    epilog="The exit code is 0, or 1 if something is wrong.",
  )
  made.add_argument(
    "corpus",
    metavar="CORPUS",
    help="a pair's prefix, or the path of an .array_record file",
  )
  made.add_argument(
    "--samples",
    type=_count,
    default=3,
    metavar="N",
    help="show the first N documents (default: 3)",
  )
  made.add_argument(
    "--document",
    type=_count,
    action="append",
    default=[],
    metavar="I",
    help="show document I instead, counted from 0; may be given several times",
  )
  made.add_argument(
    "--tokenizer",
    metavar="TOKENIZER",
    help="decode with this one, a folder or a name on the hub (default: the"
    " manifest's, if it is here; else ids are shown). With --verify: the"
    " corpus must be of this one",
  )
  made.add_argument(
    "--eod-id",
    type=_count,
    metavar="ID",
    help="look for this EOD (default: the tokenizer's)",
  )
  made.add_argument(
    "--no-scan",
    action="store_true",
    help="do not read all tokens: leaves EODs out, and of an ArrayRecord all"
    " counts but that of documents",
  )
  made.add_argument(
    "--verify",
    action="store_true",
    help="check sizes, digests, the .idx, every id, EODs and the manifest",
  )
  made.add_argument(
    "--max-problems",
    type=_count,
    default=20,
    metavar="N",
    help="with --verify, show N problems, and count the others (default: 20)",
  )
  made.add_argument(
    "--json", action="store_true", help="write JSON instead of text"
  )
  return made


def _describe(flags: argparse.Namespace) -> int:
  found = describe(
    corpus_name(flags.corpus),
    samples=flags.samples,
    documents=flags.document,
    tokenizer=flags.tokenizer,
    eod_id=flags.eod_id,
    scan=not flags.no_scan,
  )
  print(_json(found) if flags.json else description_text(found))
  return 0


def _verify(flags: argparse.Namespace) -> int:
  name = corpus_name(flags.corpus)
  if flags.tokenizer is not None:
    info = tokenizer_info(load_tokenizer(flags.tokenizer))
  else:
    info = _named_tokenizer(name)
  found, scan = verify(name, tokenizer=info, listed=flags.max_problems)
  if flags.json:
    content: dict[str, Any] = {
      "name": name,
      "good": found.good,
      "checks": [dataclasses.asdict(check) for check in found.checks],
      "num_problems": found.num_problems,
      "problems": found.problems,
    }
    if scan is not None:
      content |= {
        "documents": scan.documents,
        "sequences": scan.sequences,
        "tokens": scan.tokens,
        "empty_documents": scan.empty,
      }
    print(_json(content))
  else:
    print(verification_text(name, found))
  return 0 if found.good else 1


def _named_tokenizer(name: str) -> TokenizerInfo | None:
  """The tokenizer that a corpus' manifest names; None where it is not here."""
  # A manifest that cannot be read is told by `verify`.
  with contextlib.suppress(ValueError):
    manifest = parse_manifest(name)
    if manifest is not None:
      return tokenizer_info(
        load_tokenizer(manifest.tokenizer.name, local_files_only=True)
      )
  return None


def _json(content: dict[str, Any]) -> str:
  return json.dumps(content, ensure_ascii=False, indent=1)


def _count(text: str) -> int:
  value = int(text)
  if value < 0:
    raise argparse.ArgumentTypeError(f"expected 0 or more, got {text}")
  return value


if __name__ == "__main__":
  sys.exit(main())
