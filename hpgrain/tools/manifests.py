"""Counts of the units and of the corpus in, the corpus' manifest out."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from hpgrain.manifest import (
  BadInput,
  DatasetSource,
  InputFile,
  Manifest,
  storage_fields,
  tool_name,
)
from hpgrain.tokenizer import TokenizerInfo
from hpgrain.tools import inputs
from hpgrain.tools.inputs import Unit
from hpgrain.tools.merge import Counts
from hpgrain.tools.request import Layout, UnitRequest
from hpgrain.tools.unit_file import UnitReader

# Bad records that a manifest lists; the others are counted.
_LISTED = 100


class Summaries:
  """What all finished units together say.

  Attributes:
    num_records: good records.
    num_bad: bad ones.
    bad: the first of them.
    refused: for each unit, the numbers of bad records that can be read.
    empty: for each key, records without a token.
    special: for each key, records that spell out a special token.
    tokens: for each key, of all units.
  """

  def __init__(
    self, paths: Sequence[Path], units: Sequence[Unit], *, num_keys: int
  ) -> None:
    """Reads the summary of each unit's file."""
    self.num_records = self.num_bad = 0
    self.bad: list[BadInput] = []
    self.refused: list[frozenset[int]] = []
    self.empty = [0] * num_keys
    self.special = [0] * num_keys
    self.tokens = [0] * num_keys
    path, before = "", 0
    for unit_path, unit in zip(paths, units):
      with UnitReader(unit_path) as reader:
        summary = reader.summary
        for key in range(num_keys):
          self.tokens[key] += reader.num_tokens(key)
      self.refused.append(frozenset(summary["refused"]))
      if unit.file.path != path:
        path, before = unit.file.path, 0
      for bad in summary["bad"][: _LISTED - len(self.bad)]:
        number = before + bad["index"] + 1
        self.bad.append(BadInput(path, number, bad["offset"], bad["reason"]))
      before += summary["records"] + summary["bad_records"]
      self.num_records += summary["records"]
      self.num_bad += summary["bad_records"]
      for key in range(num_keys):
        self.empty[key] += summary["empty_records"][key]
        self.special[key] += summary["special_token_records"][key]

  def check(self, *, skip: bool, limit: int) -> None:
    """Refuses bad records that an earlier run skipped.

    Raises:
      ValueError: there are some and `skip` is off, or more than `limit`.
    """
    if not self.num_bad or (skip and self.num_bad <= limit):
      return
    first = self.bad[0]
    what = f"more than --max-bad-records={limit} allows"
    if not skip:
      what = "which an earlier run was allowed to skip and this one is not"
    raise ValueError(
      f"The input has {self.num_bad} bad records, {what}. The first is record"
      f" {first.record} of {first.path}, which {first.reason}"
    )


def make_manifest(
  name: Path,
  *,
  digests: Mapping[str, str],
  place: int,
  request: UnitRequest,
  layout: Layout,
  info: TokenizerInfo,
  files: Sequence[inputs.InputFile],
  summaries: Summaries,
  counts: Counts,
  dataset: DatasetSource | None = None,
) -> Manifest:
  """Describes a corpus that is there.

  Args:
    name: of the corpus: a pair's prefix, or an ArrayRecord's path.
    digests: of its files.
    place: of its key.
    request: what its units were made by.
    layout: what was made of them.
    info: its tokenizer.
    files: the input.
    summaries: of the units.
    counts: of the corpus.
    dataset: where the input comes from.
  """
  special = "plain" if request.encoder.plain else "as_is"
  packed = layout.pack_to_seq_len is not None
  return Manifest(
    tool=tool_name(),
    tokenizer=info,
    append_eod=request.encoder.add_eod is not None,
    pack_to_seq_len=layout.pack_to_seq_len,
    dtype=request.encoder.dtype.name,
    documents=counts.documents,
    sequences=counts.sequences,
    tokens=counts.tokens,
    dropped_tokens=counts.dropped_tokens,
    dropped_documents=counts.dropped_documents,
    empty_documents=summaries.empty[place],
    inputs=tuple(InputFile(path=file.path, bytes=file.size) for file in files),
    json_key=request.keys[place],
    records=summaries.num_records,
    special_token_documents=summaries.special[place],
    special_tokens_in_text=(
      "error" if request.refuse_special_tokens else special
    ),
    bad_records=summaries.num_bad,
    bad=tuple(summaries.bad),
    tokenizer_backend=request.encoder.backend,
    tokenizer_backend_version=request.encoder.version,
    partitions=layout.partitions,
    keep_sequential_samples=layout.keep_sequential_samples,
    pack_tail=("carry" if layout.carry_tails else "drop") if packed else None,
    shuffle_seed=layout.shuffle_seed,
    sentences=request.sentences and request.sentences.lang,
    chat_template=request.chat and request.chat.digest,
    dataset=dataset,
    **storage_fields(name, digests),
  )
