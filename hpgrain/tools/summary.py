"""What a preparation did, as a table for a person.

inputs              2 files, 1,234 bytes
units               3 done, 1 reused of 4
time                1.2 s, 0.8 MB/s
data/x_text_document.bin, .idx and .manifest.json
  records           12
  ...
"""

import os
from collections.abc import Iterator

from hpgrain.manifest import Manifest
from hpgrain.tools.corpus import Report
from hpgrain.tools.options import Options

_WIDTH = 20


def run_summary(options: Options, report: Report) -> str:
  """What a run wrote, or what its shard did."""
  lines = [
    _row(
      "inputs",
      f"{_count(report.num_inputs, 'file')},"
      f" {_count(report.input_bytes, 'byte')}",
    )
  ]
  lines.append(
    _row(
      "units",
      f"{report.num_done:,} done, {report.num_reused:,} reused of"
      f" {report.num_units:,}",
    )
  )
  rate = report.done_bytes / max(report.seconds, 1e-9) / 1e6
  lines.append(_row("time", f"{report.seconds:,.1f} s, {rate:,.1f} MB/s"))
  for path in options.partition_files() if report.manifests else ():
    lines.append(_row("partition file", str(path)))
  for key, manifest in report.manifests.items():
    lines.append(summary(options.corpus(key), manifest))
  if options.is_shard():
    lines.append(
      f"shard {options.shard_index} of {options.num_shards} is done. When all"
      " shards have ended, run the same with the word merge before the flags."
    )
  return "\n".join(lines)


def summary(name: str | os.PathLike[str], manifest: Manifest) -> str:
  """What a corpus holds: a pair, by its prefix, or an ArrayRecord."""
  rows = [f"  {_row(name, what, -2)}" for name, what in _rows(manifest)]
  if manifest.format == "indexed":
    wrote = f"wrote {os.fspath(name)}.bin, .idx and .manifest.json"
  else:
    wrote = f"wrote {os.fspath(name)} and {os.fspath(name)}.manifest.json"
  return "\n".join([wrote, *rows])


def _rows(manifest: Manifest) -> Iterator[tuple[str, str]]:
  info = manifest.tokenizer
  if (source := manifest.dataset) is not None:
    commit = f", commit {source.commit}" if source.commit else ""
    yield "dataset", f"{source.id}, {source.subset}, {source.split}{commit}"
  yield "records", f"{manifest.records or 0:,}"
  bad = f"{manifest.bad_records:,} left out"
  yield "bad records", bad + ", see the manifest" * bool(manifest.bad)
  yield (
    "documents",
    f"{manifest.documents:,}, in {_count(manifest.sequences, 'sequence')}",
  )
  yield "empty documents", f"{manifest.empty_documents:,} read"
  num_bytes = manifest.bin_bytes or manifest.array_record_bytes or 0
  yield (
    "tokens",
    f"{manifest.tokens:,} as {manifest.dtype}, {num_bytes:,} bytes",
  )
  if manifest.pack_to_seq_len is not None:
    yield "packed", f"records of {manifest.pack_to_seq_len + 1:,} tokens"
  yield (
    "dropped",
    f"{_count(manifest.dropped_tokens, 'token')} in"
    f" {_count(manifest.dropped_documents, 'tail')}",
  )
  yield (
    "special tokens",
    f"spelt out by {_count(manifest.special_token_documents or 0, 'document')}"
    f" ({manifest.special_tokens_in_text})",
  )
  yield (
    "tokenizer",
    f"{info.name}, {info.vocab_size:,} ids, digest {info.digest}",
  )
  yield (
    "encoded by",
    f"{manifest.tokenizer_backend} {manifest.tokenizer_backend_version}",
  )
  yield (
    "EOD",
    f"id {info.eod_id} after each document" if manifest.append_eod else "none",
  )
  if manifest.partitions > 1:
    how = "consecutive" if manifest.keep_sequential_samples else "dealt in turn"
    yield "partitions", f"{manifest.partitions}, records {how}"
  if manifest.shuffle_seed is not None:
    yield "shuffled", f"by the seed {manifest.shuffle_seed}"
  if manifest.sentences is not None:
    yield "sentences", f"split as {manifest.sentences}, each a sequence"
  if manifest.chat_template is not None:
    yield "chat template", f"digest {manifest.chat_template}"


def _count(number: int, what: str) -> str:
  return f"{number:,} {what}{'s' * (number != 1)}"


def _row(name: str, what: str, extra: int = 0) -> str:
  return f"{name:<{_WIDTH + extra}}{what}"
