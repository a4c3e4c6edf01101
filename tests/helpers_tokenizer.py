"""Tiny Hugging Face tokenizers in folders, and a reader of pairs for tests."""

import struct
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

WORDS = ("<eos>", "<sep>", "<unk>", "a", "b", "c", "d", "e")


def save_word_tokenizer(folder, *, size=8, **special):
  """Whole words; "a" is 3, "b" is 4, ...; unknown words are 2."""
  vocabulary = {word: i for i, word in enumerate(WORDS)}
  vocabulary |= {f"w{i}": i for i in range(len(WORDS), size)}
  backend = tokenizers.Tokenizer(
    models.WordLevel(vocabulary, unk_token="<unk>")
  )
  backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
  PreTrainedTokenizerFast(
    tokenizer_object=backend, unk_token="<unk>", **special
  ).save_pretrained(folder)
  return Path(folder)


def save_bpe_tokenizer(folder):
  """A trained byte-level BPE that puts <bos> before and <eos> after a text.

  Its tokenizer.json also carries a truncation to five ids, left over from
  some earlier use, as real ones do.
  """
  backend = tokenizers.Tokenizer(models.BPE())
  backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  backend.decoder = decoders.ByteLevel()
  text = Path(__file__).read_text(encoding="utf-8")
  trainer = trainers.BpeTrainer(
    vocab_size=400,
    special_tokens=["<bos>", "<eos>"],
    initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    show_progress=False,
  )
  backend.train_from_iterator(text.splitlines(), trainer)
  backend.post_processor = processors.TemplateProcessing(
    single="<bos> $A <eos>", special_tokens=[("<bos>", 0), ("<eos>", 1)]
  )
  backend.enable_truncation(5)
  PreTrainedTokenizerFast(
    tokenizer_object=backend, bos_token="<bos>", eos_token="<eos>"
  ).save_pretrained(folder)
  return Path(folder)


def read_pair(prefix):
  """(dtype name, tokens, lengths, document indices), by the format alone."""
  index = Path(f"{prefix}.idx").read_bytes()
  magic, version, code, num_sequences, num_indices = struct.unpack_from(
    "<9sQBQQ", index
  )
  assert (magic, version) == (b"MMIDIDX\0\0", 1)
  lengths = np.frombuffer(index, "<i4", num_sequences, 34)
  pointers = np.frombuffer(index, "<i8", num_sequences, 34 + 4 * num_sequences)
  documents = np.frombuffer(index, "<i8", num_indices, 34 + 12 * num_sequences)
  assert len(index) == 34 + 12 * num_sequences + 8 * num_indices
  dtype = np.dtype({4: "<i4", 8: "<u2"}[code])
  tokens = np.frombuffer(Path(f"{prefix}.bin").read_bytes(), dtype)
  ends = np.cumsum(lengths, dtype=np.int64)
  assert pointers.tolist() == ((ends - lengths) * dtype.itemsize).tolist()
  assert len(tokens) == lengths.sum()
  return dtype.name, tokens.tolist(), lengths.tolist(), documents.tolist()
