"""What a preparation did, in a few lines for a person."""

import os

from hpgrain.manifest import Manifest
from hpgrain.tools.corpus import Report
from hpgrain.tools.options import Options


def run_summary(options: Options, report: Report) -> str:
  """What a run wrote, or what its shard did."""
  lines = [
    summary(options.prefix(key), manifest)
    for key, manifest in report.manifests.items()
  ]
  work = f"{report.num_done:,} of {report.num_units:,} units were done"
  if report.num_reused:
    work += f", {report.num_reused:,} were there from an earlier run"
  if options.num_shards > 1:
    work = (
      f"shard {options.shard_index} of {options.num_shards}: {work}. When all"
      " shards have ended, run the same with --merge-only instead of the shard"
      " flags."
    )
  return "\n".join([*lines, work])


def summary(prefix: str | os.PathLike[str], manifest: Manifest) -> str:
  """What a pair holds."""
  info = manifest.tokenizer
  lines = [
    f"wrote {os.fspath(prefix)}.bin and .idx",
    f"  documents  {manifest.documents:,}, in {manifest.sequences:,} sequences"
    f" ({manifest.empty_documents:,} empty ones read)",
    f"  tokens     {manifest.tokens:,} as {manifest.dtype}"
    f" ({manifest.bin_bytes:,} bytes)",
    f"  tokenizer  {info.name}, {info.vocab_size:,} ids, digest {info.digest}",
    f"  encoded by {manifest.tokenizer_backend}"
    f" {manifest.tokenizer_backend_version}",
    f"  EOD        id {info.eod_id} after each document"
    if manifest.append_eod
    else "  EOD        none",
  ]
  if manifest.special_token_documents:
    lines.append(
      f"  special    {manifest.special_token_documents:,} documents spell out"
      f" a special token ({manifest.special_tokens_in_text})"
    )
  if manifest.bad_records:
    lines.append(
      f"  bad        {manifest.bad_records:,} records left out, listed in the"
      " manifest"
    )
  if manifest.shuffle_seed is not None:
    lines.append(f"  shuffled   by the seed {manifest.shuffle_seed}")
  if manifest.partitions > 1:
    how = "consecutive" if manifest.keep_sequential_samples else "dealt in turn"
    lines.append(f"  partitions {manifest.partitions}, records {how}")
  if manifest.pack_to_seq_len is not None:
    lines.append(
      f"  packed     records of {manifest.pack_to_seq_len + 1} tokens,"
      f" {manifest.dropped_tokens:,} tokens of the tail dropped"
    )
  return "\n".join(lines)
