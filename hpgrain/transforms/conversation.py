r"""Conversations in, examples out that learn the assistant's turns alone.

  record    {"messages": [user, assistant, user, assistant]}
  text      by the chat template        rendering.py
  tokens    ids, and a weight each      chat_tokens.py
  example   one, of at most max_seq_len positions, or none:

  truncation  error        a longer one is refused (default)
              right        its end is cut off
              left_turns   its oldest turns are left out, the system prompt kept
              drop         it gives no example

An example without a label to learn is always left out, and counted.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hpgrain.arguments import integer
from hpgrain.examples import Examples, cut_documents
from hpgrain.transforms.chat_templates import find_template, fix_day
from hpgrain.transforms.chat_tokens import ChatEncoder, ChatTokens
from hpgrain.transforms.counters import Counters
from hpgrain.transforms.lazy_tokenizer import OPENING, LazyTokenizer
from hpgrain.transforms.messages import (
  MESSAGE_KEYS,
  ROLES,
  Conversation,
  read_conversation,
)
from hpgrain.transforms.rendering import Rendered, Renderer
from hpgrain.transforms.text_fields import text_keys_of
from hpgrain.transforms.transform import Place, Record
from hpgrain.transforms.turns import turn_begins, without_oldest_turns

TRUNCATIONS = ("error", "right", "left_turns", "drop")


class ConversationTransform:
  """Renders and tokenizes conversations; see `transform.Transform`.

  Threads may share it. No EOS is put behind a conversation: its template ends
  it.
  """

  one_to_one = True

  def __init__(
    self,
    tokenizer: LazyTokenizer,
    *,
    max_seq_len: int,
    chat_template: str | None = None,
    text_keys: str | Sequence[str] | None = None,
    role_names: Mapping[str, str] | None = None,
    trained_roles: Sequence[str] = ("assistant",),
    truncation: str = "error",
    template_variables: Mapping[str, Any] | None = None,
    template_date: str | None = None,
    labels_are_shifted: bool = True,
  ) -> None:
    """Checks the options; opens nothing.

    Args:
      tokenizer: what tokenizes.
      max_seq_len: positions an example has at most.
      chat_template: "chatml" or another of ours, a Jinja template, or
        "tokenizer" for the tokenizer's own, as is None.
      text_keys: the field of the messages, or several of which the first that
        a record has is taken; None: messages, conversation, conversations.
      role_names: more names of roles, and which of system, user, assistant
        and tool each stands for.
      trained_roles: the roles that are learnt. What ends their turns is
        learnt too.
      truncation: what is done with a conversation that is too long.
      template_variables: what else the template gets, as `enable_thinking`.
      template_date: a day for templates that put today's date into the text.
      labels_are_shifted: whether labels[t] is the target at position t.

    Raises:
      ValueError: an option is not legal.
    """
    self._tokenizer = tokenizer
    self._max_seq_len = integer("max_seq_len", max_seq_len, minimum=1)
    self._chat_template = chat_template
    self._keys = text_keys_of(MESSAGE_KEYS if text_keys is None else text_keys)
    self._roles = {**ROLES, **dict(role_names or {})}
    self._trained_roles = tuple(dict.fromkeys(trained_roles))
    known = tuple(dict.fromkeys(ROLES.values()))
    for what, names in (
      ("role_names", self._roles.values()),
      ("trained_roles", self._trained_roles),
    ):
      unknown = [name for name in names if name not in known]
      if unknown or not names:
        raise ValueError(
          f"data_transform.{what} may name {', '.join(known)}, got {unknown}."
        )
    if truncation not in TRUNCATIONS:
      raise ValueError(
        f"data_transform.truncation must be one of {', '.join(TRUNCATIONS)},"
        f" got {truncation!r}."
      )
    self._truncation = truncation
    self._variables = dict(template_variables or {})
    self._date = template_date
    self._labels_are_shifted = labels_are_shifted
    # Ids of a conversation that fills an example.
    self._limit = self._max_seq_len + int(labels_are_shifted)
    self._opened: tuple[Renderer, ChatEncoder] | None = None
    self.counters = Counters()

  @property
  def identity(self) -> dict[str, Any]:
    """Everything that decides the examples, as JSON."""
    return {
      "transform": "conversation",
      "version": 1,
      "tokenizer": self._tokenizer.info().digest,
      "template": self._template(),
      "template_variables": self._variables,
      "special_tokens": self._special_tokens(),
      "keys": list(self._keys),
      "roles": self._roles,
      "trained_roles": list(self._trained_roles),
      "truncation": self._truncation,
      "max_seq_len": self._max_seq_len,
      "labels_are_shifted": self._labels_are_shifted,
    }

  def __call__(self, records: Sequence[Record], place: Place) -> Examples:
    """See `transform.Transform`.

    Raises:
      ValueError: a record holds no conversation, its template does not show
        what is learnt, or it is too long and `truncation` is "error".
    """
    renderer, encoder = self._open()
    # Of each record, by reason.
    dropped = {
      reason: np.zeros(len(records), np.int64)
      for reason in ("empty", "overlong", "no_label")
    }
    lost = {
      reason: np.zeros(len(records), np.int64)
      for reason in ("overlong", "no_label", "truncated")
    }
    found: dict[int, tuple[Conversation, Rendered]] = {}
    for i, record in enumerate(records):
      try:
        conversation = self._read(record)
        if conversation.messages:
          found[i] = conversation, renderer.render(conversation)
        else:
          dropped["empty"][i] = 1
      except ValueError as error:
        raise ValueError(f"{place(i)}: {error}") from None
    encoded = encoder.encode([rendered for _, rendered in found.values()])
    kept: dict[int, ChatTokens] = {}
    for (i, (conversation, _)), tokens in zip(found.items(), encoded):
      try:
        short = self._shorten(conversation, tokens)
      except ValueError as error:
        raise ValueError(f"{place(i)}: {error}") from None
      whole = self._positions(tokens)
      if short is None:
        dropped["overlong"][i] = 1
        lost["overlong"][i] = whole
      elif not short.weights[int(self._labels_are_shifted) :].any():
        dropped["no_label"][i] = 1
        lost["no_label"][i] = whole
      else:
        kept[i] = short
        lost["truncated"][i] = whole - self._positions(short)
    examples = self._examples(kept, len(records))
    self.counters.add(examples, dropped=dropped, tokens_dropped=lost)
    return examples

  def _read(self, record: Record) -> Conversation:
    return read_conversation(
      record,
      keys=self._keys,
      roles=self._roles,
      trained_roles=self._trained_roles,
    )

  def _positions(self, tokens: ChatTokens) -> int:
    return max(len(tokens.ids) - int(self._labels_are_shifted), 0)

  def _shorten(
    self, conversation: Conversation, tokens: ChatTokens
  ) -> ChatTokens | None:
    """A conversation as an example holds it; None where it is to be dropped."""
    if len(tokens.ids) <= self._limit:
      return tokens
    if self._truncation == "error":
      raise ValueError(
        f"it has {len(tokens.ids)} tokens, and max_seq_len={self._max_seq_len}"
        f" holds {self._limit}. Set data_transform.truncation to 'right',"
        " 'left_turns' or 'drop', or raise data_transform.max_seq_len."
      )
    if self._truncation == "right":
      return ChatTokens(
        tokens.ids[: self._limit], tokens.weights[: self._limit]
      )
    if self._truncation == "drop":
      return None
    return self._without_oldest(conversation)

  def _without_oldest(self, conversation: Conversation) -> ChatTokens | None:
    """A conversation without as few turns as it takes, found by halving."""
    renderer, encoder = self._open()
    fitting: ChatTokens | None = None
    # What is too long without so many turns, and what fits without so many.
    too_few, enough = 0, len(turn_begins(conversation))
    while enough - too_few > 1:
      count = (too_few + enough) // 2
      shorter = without_oldest_turns(conversation, count)
      tokens = encoder.encode([renderer.render(shorter)])[0]
      if len(tokens.ids) <= self._limit:
        fitting, enough = tokens, count
      else:
        too_few = count
    return fitting

  def _examples(self, kept: Mapping[int, ChatTokens], num: int) -> Examples:
    lengths = np.zeros(num, np.int64)
    for i, tokens in kept.items():
      lengths[i] = len(tokens.ids)
    rows = list(kept.values())
    ids = np.concatenate([np.zeros(0, np.int32), *(r.ids for r in rows)])
    weights = np.concatenate(
      [np.zeros(0, np.float32), *(r.weights for r in rows)]
    )
    # Zeros and ones say no more than the labels do.
    plain = not ((weights != 0) & (weights != 1)).any()
    return cut_documents(
      ids,
      lengths,
      max_seq_len=self._max_seq_len,
      labels_are_shifted=self._labels_are_shifted,
      trained=weights > 0,
      weights=None if plain else weights,
    )

  def _template(self) -> str:
    template = find_template(self._chat_template, self._tokenizer.open())
    return fix_day(template, self._date)

  def _special_tokens(self) -> dict[str, Any]:
    return dict(self._tokenizer.open().special_tokens_map)

  def _open(self) -> tuple[Renderer, ChatEncoder]:
    """What renders and what encodes, opened the first time."""
    if self._opened is None:
      with OPENING:
        self._opened = self._opened or self._open_now()
    return self._opened

  def _open_now(self) -> tuple[Renderer, ChatEncoder]:
    tokenizer = self._tokenizer.open()
    added = tokenizer.added_tokens_decoder.values()
    renderer = Renderer(
      self._template(),
      special_tokens=self._special_tokens(),
      trained_roles=self._trained_roles,
      end_tokens=[str(token) for token in added if token.special],
      variables=self._variables,
    )
    return renderer, ChatEncoder(tokenizer)

  def __getstate__(self) -> dict[str, Any]:
    """What a pickle carries: the options, and nothing that is open."""
    return {**self.__dict__, "_opened": None}
