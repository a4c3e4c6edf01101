"""Writes the table of all configuration keys from the schema.

python -m hpgrain.config_docs > docs/config.md
"""

import sys

from hpgrain.config_schema import KEYS
from hpgrain.config_uses import USES
from hpgrain.config_values import describe


def markdown() -> str:
  """Returns the table of all keys, section by section."""
  lines = [
    "# Configuration keys",
    "",
    "Made by `python -m hpgrain.config_docs > docs/config.md`. A config file"
    " starts from `hpgrain.config.base_config()`; a flag such as"
    " `--config.training.train_iters=3` overrides one key.",
  ]
  section = None
  for key in KEYS:
    head, _, name = key.name.rpartition(".")
    if head != section:
      title = f"`{head}`" if head else "Without a section"
      lines += ["", f"## {title}", ""]
      lines += ["| key | value | default | meaning |", "|---|---|---|---|"]
      section = head
    default = "unset" if key.default is None else f"`{key.default!r}`"
    meaning = key.meaning
    if key.only:
      meaning += f" For {USES[key.only].words}."
    lines.append(f"| `{name}` | {describe(key)} | {default} | {meaning} |")
  return "\n".join(lines) + "\n"


if __name__ == "__main__":
  sys.stdout.write(markdown())
