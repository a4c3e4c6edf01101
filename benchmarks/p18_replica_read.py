"""P18: rows that several processes need, made by each or split among them.

  cp over N processes, each with one CPU device, all with parts of every row
  each     every process tokenizes all rows of a batch
  split    it tokenizes rows / N, and the devices exchange them

Text is tokenized while training by Hugging Face's backend on one core, and no
batch is made ahead, so a batch's time is that of making it and of the exchange.
The processes share this machine's cores: seconds are a process's own (CPU).
"""

import argparse
import concurrent.futures
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=1"
os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import common
import jax
import ml_collections as mlc
import numpy as np
from jax.experimental import multihost_utils

import hpgrain
from hpgrain import reshard, shard
from hpgrain.examples import Examples
from hpgrain.tools.example_text import find_stdlib, split_text, train_tokenizer
from hpgrain.transforms.plaintext import PlaintextTransform

_ROWS, _POSITIONS = 16, 2048
# Characters, fewer than a row has room for.
_RECORD = 3000
_WAYS = ("each", "split")


def _config(folder: str, count: int, how: str) -> mlc.ConfigDict:
  return mlc.ConfigDict(
    {
      "training": {"global_batch_size": _ROWS},
      "mesh": {"cp": count},
      "data_transform": {
        "data_type": "plaintext",
        "max_seq_len": _POSITIONS,
        "backend": "huggingface",
      },
      "model_assets": {
        "tokenizer": {"pretrained_model_name_or_path": f"{folder}/tokenizer"}
      },
      "dataset": {
        "kind": "online",
        "data_path": f"{folder}/text.jsonl",
        "data_config": {"data_cache_path": f"{folder}/cache"},
      },
      "dataloader": {
        "type": "dynamic",
        "token_budget": _POSITIONS,
        "replica_read": how,
        "prefetch": 0,
      },
    }
  )


def _process(
  *, folder: str, count: int, process: int, port: int, batches: int, turns: int
) -> dict[str, Any]:
  """Makes batches in both ways in turn; returns what one of them cost."""
  jax.config.update("jax_cpu_collectives_implementation", "gloo")
  jax.distributed.initialize(
    f"127.0.0.1:{port}", num_processes=count, process_id=process
  )
  mesh = shard.make_mesh(
    ("data", "cp", "tp"), {"data": 1, "cp": count, "tp": 1}
  )
  tokens = [0]
  transform = PlaintextTransform.__call__

  def counted(self: Any, records: Any, place: Any) -> Examples:
    examples = transform(self, records, place)
    tokens[0] += len(examples.input_ids)
    return examples

  loaders = {
    how: hpgrain.build(_config(folder, count, how), mesh).train for how in _WAYS
  }
  iterators = {how: iter(loader) for how, loader in loaders.items()}
  found: dict[str, Any] = {
    how: {"tokens": [], "cpu": [], "wall": [], "exchange": []} for how in _WAYS
  }
  for how in _WAYS:
    # Measures, and compiles the exchange.
    batch = jax.block_until_ready(next(iterators[how]))
  PlaintextTransform.__call__ = counted
  for turn in range(turns):
    rows = {}
    for how in _WAYS if turn % 2 else reversed(_WAYS):
      multihost_utils.sync_global_devices("begin")
      tokens[0] = 0
      exchanged = iterators[how].stats()["exchange_seconds"]
      began = time.perf_counter(), time.process_time()
      for _ in range(batches):
        batch = jax.block_until_ready(next(iterators[how]))
      wall, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
      exchanged = iterators[how].stats()["exchange_seconds"] - exchanged
      for name, value in (
        ("tokens", tokens[0]),
        ("cpu", cpu),
        ("wall", wall),
        ("exchange", exchanged),
      ):
        found[how][name].append(value / batches)
      rows[how] = {
        name: np.asarray(values.addressable_data(0))
        for name, values in batch.items()
      }
    for name, values in rows["each"].items():
      np.testing.assert_array_equal(rows["split"][name], values)
  held = sum(values.nbytes for values in rows["each"].values())
  exchange = reshard.find_exchange(loaders["split"].sharding)
  assert exchange is not None, "processes share rows"
  found["bytes"] = held * (exchange.num_shares - 1) // exchange.num_shares
  multihost_utils.sync_global_devices("end")
  return found


def _make_data(folder: Path) -> None:
  """Writes records of Python's own text, and trains a tokenizer on them."""
  split = split_text(find_stdlib(), max_bytes=6_000_000)
  (folder / "tokenizer").mkdir()
  train_tokenizer(split, folder / "tokenizer")
  with (folder / "text.jsonl").open("w") as out:
    for _, text in (*split.library, *split.tests):
      for begin in range(0, len(text), _RECORD):
        out.write(json.dumps({"text": text[begin : begin + _RECORD]}) + "\n")


def measure(folder: Path, options: argparse.Namespace) -> Iterator[common.Row]:
  """Yields tokens, CPU and the exchange of each number of processes."""
  _make_data(folder)
  for count in options.processes:
    with socket.socket() as free:
      free.bind(("127.0.0.1", 0))
      port = free.getsockname()[1]
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
      found = list(
        pool.map(
          lambda process, count=count, port=port: common.in_child(
            __file__,
            folder=str(folder),
            count=count,
            process=process,
            port=port,
            batches=options.batches,
            turns=options.repeats,
          ),
          range(count),
        )
      )
    yield from _rows(count, found)


def _rows(count: int, found: list[dict[str, Any]]) -> Iterator[common.Row]:
  """Yields what the processes found."""
  work = f"{_ROWS} rows x {_POSITIONS} over cp {count}, {count} processes"
  # Of each way all processes, turn by turn.
  every = {
    how: {
      name: np.array([one[how][name] for one in found])
      for name in found[0][how]
    }
    for how in _WAYS
  }
  each, split = (every[how] for how in _WAYS)
  tokens = split["tokens"].sum() / each["tokens"].sum()
  yield common.Row(
    "P18",
    f"{work}: tokens made a batch and process",
    f"split {split['tokens'].mean(1).min():,.0f} to"
    f" {split['tokens'].mean(1).max():,.0f}",
    f"each {each['tokens'].mean():,.0f}",
    f"{tokens:.2f}x",
    f"<= {1.1 / count:.2f}x",
    bool(tokens <= 1.1 / count),
  )
  cpu = float(np.median(split["cpu"].sum(0) / each["cpu"].sum(0)))
  yield common.Row(
    "P18",
    f"{work}: CPU a batch and process",
    f"split {common.duration(float(np.median(split['cpu'])))}",
    f"each {common.duration(float(np.median(each['cpu'])))}",
    f"{cpu:.2f}x",
    "",
    None,
  )
  wall = float(np.median(split["wall"][0] / each["wall"][0]))
  yield common.Row(
    "P18",
    f"{work}: a batch, nothing ahead",
    f"split {common.duration(float(np.median(split['wall'])))}",
    f"each {common.duration(float(np.median(each['wall'])))}",
    f"{wall:.2f}x",
    "",
    None,
  )
  exchange = float(np.median(split["exchange"]))
  yield common.Row(
    "P18",
    f"{work}: the exchange, gloo",
    f"{found[0]['bytes'] / 1e6:.2f} MB received a process",
    f"issuing {common.duration(exchange)} of the batch",
    "",
    "",
    None,
  )


if __name__ == "__main__" and not common.child(_process):
  common.run(measure, processes=(2, 4), batches=3, repeats=6)
