"""What P11 compares: each prepares a corpus once, in a process of its own.

bare_loop          read, orjson, gigatoken in batches of 256, EOD, write
bare_huggingface   the same with the tokenizers library
ours               hpgrain.tools.corpus.prepare_corpus
datatrove          JsonlReader and DocumentTokenizer; needs nothing of ours
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_BATCH = 256


def bare_loop(source: str, tokenizer: str, output: str) -> None:
  import gigatoken
  import numpy as np

  backend = gigatoken.Tokenizer.from_json(
    (Path(tokenizer) / "tokenizer.json").read_text(encoding="utf-8")
  ).backend

  def encode(texts: Sequence[str]) -> tuple[Any, Any]:
    layout = backend.encode_batch(texts, parallel=False).layout
    return np.asarray(layout.content.data), np.asarray(layout.offsets)

  _loop(source, tokenizer, output, encode)


def bare_huggingface(source: str, tokenizer: str, output: str) -> None:
  import numpy as np
  import tokenizers

  backend = tokenizers.Tokenizer.from_file(f"{tokenizer}/tokenizer.json")

  def encode(texts: Sequence[str]) -> tuple[Any, Any]:
    encodings = backend.encode_batch_fast(texts, add_special_tokens=False)
    rows = [encoding.ids for encoding in encodings]
    offsets = np.cumsum([0, *map(len, rows)])
    return np.concatenate(rows).astype(np.uint32), offsets

  _loop(source, tokenizer, output, encode)


def _loop(
  source: str,
  tokenizer: str,
  output: str,
  encode: Callable[[Sequence[str]], tuple[Any, Any]],
) -> None:
  """All that has to be done, and nothing else: nothing is checked."""
  import numpy as np
  import orjson

  described = json.loads((Path(tokenizer) / "p11.json").read_text())
  dtype = np.dtype(described["dtype"])
  eod = np.array([described["eod_id"]], np.uint32)
  lengths: list[int] = []
  with Path(source).open("rb") as lines, Path(output).open("wb") as out:

    def write(texts: Sequence[str]) -> None:
      ids, offsets = encode(texts)
      parts = []
      for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist()):
        parts += [ids[begin:end], eod]
        lengths.append(end - begin + 1)
      out.write(np.concatenate(parts).astype(dtype).data)

    texts = []
    for line in lines:
      texts.append(orjson.loads(line)["text"])
      if len(texts) == _BATCH:
        write(texts)
        texts = []
    if texts:
      write(texts)
  np.array(lengths, np.int32).tofile(f"{output}.lengths")


def ours(
  source: str, tokenizer: str, output: str, backend: str, workers: str
) -> None:
  from hpgrain.tokenizer import load_tokenizer
  from hpgrain.tools import engine
  from hpgrain.tools.corpus import prepare_corpus

  if int(workers) > 1:
    # As asked for, also where that does not pay.
    engine.SMALL_INPUT_BYTES = 0
  prepare_corpus(
    source,
    output_prefix=output,
    tokenizer=load_tokenizer(tokenizer),
    tokenizer_backend=backend,
    workers=int(workers),
    log_interval=0,
    overwrite=True,
  )


def datatrove(source: str, tokenizer: str, output: str) -> None:
  from datatrove.executor import LocalPipelineExecutor
  from datatrove.pipeline.readers import JsonlReader
  from datatrove.pipeline.tokens import DocumentTokenizer

  described = json.loads((Path(tokenizer) / "p11.json").read_text())
  folder = Path(source)
  LocalPipelineExecutor(
    pipeline=[
      JsonlReader(str(folder.parent), glob_pattern=folder.name),
      DocumentTokenizer(
        output_folder=f"{output}_tokens",
        tokenizer_name_or_path=f"{tokenizer}/tokenizer.json",
        eos_token=described["eod"],
        shuffle_documents=False,
      ),
    ],
    tasks=1,
    logging_dir=f"{output}_logs",
    skip_completed=False,
  ).run()


_LOOPS = {f.__name__: f for f in (bare_loop, bare_huggingface, ours, datatrove)}

if __name__ == "__main__":
  parser = argparse.ArgumentParser()
  parser.add_argument("loop", choices=_LOOPS)
  parser.add_argument("arguments", nargs="+")
  arguments = parser.parse_args()
  _LOOPS[arguments.loop](*arguments.arguments)
