"""Small configurations, written as `section__key=value`."""


def tree(base, overrides):
  """`base` with `{"training__seed": 1}` as training.seed = 1."""
  made = {}
  for name, value in {**base, **overrides}.items():
    *sections, leaf = name.split("__")
    section = made
    for part in sections:
      section = section.setdefault(part, {})
    section[leaf] = value
  return made


_ONLINE = {
  "dataset__kind": "online",
  "dataset__data_path": "/data/a.jsonl",
  "model_assets__tokenizer__pretrained_model_name_or_path": "/data/tokenizer",
}


def online(**overrides):
  """A legal configuration of online data."""
  return tree(_ONLINE, overrides)


def packed(**overrides):
  """The same, packed."""
  return online(**{"dataloader__type": "dynamic", **overrides})


def streamed(**overrides):
  """The same, packed, in streams."""
  return packed(
    **{"dataset__data_config__dataset_type": "iterable", **overrides}
  )


def documents(**overrides):
  """Tokenized corpora, packed of whole documents."""
  base = {"dataset__data_path": "/data/books", "dataloader__type": "dynamic"}
  return tree(base, overrides)
