r"""A conversation in, its text out, and which characters of it are learnt.

By {% generation %}, where the template has it: what stands inside. Else by
prefixes: for each message k to learn,

  messages[:k] + generation prompt   <user>Hi<assistant>
  messages[:k + 1]                   <user>Hi<assistant>Hello<end>
  all                                <user>Hi<assistant>Hello<end><user>..
                                                        ~~~~~~~~~~

each must begin with the one above. Templates that render a turn differently
once another follows, as those do that drop earlier thoughts, break this: no
mask of theirs is right, and such a conversation is refused.
"""

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from hpgrain.tokenizer import import_transformers
from hpgrain.transforms.chat_templates import TEMPLATES, marks_generation
from hpgrain.transforms.messages import Conversation

# A character span [begin, end) and what its tokens count for.
Span = tuple[int, int, float]

_OFFER = (
  "Set model_assets.chat_template='chatml' (or another of ours:"
  f" {', '.join(sorted(TEMPLATES))}), which marks what is learnt"
)


@dataclasses.dataclass(frozen=True)
class Rendered:
  """A conversation's text.

  Attributes:
    text: all of it.
    spans: the characters that are learnt, in order, none overlapping.
  """

  text: str
  spans: list[Span]


class Renderer:
  """Renders conversations by one template. Threads may share it."""

  def __init__(
    self,
    template: str,
    *,
    special_tokens: Mapping[str, str],
    trained_roles: Sequence[str],
    end_tokens: Sequence[str],
    variables: Mapping[str, Any],
  ) -> None:
    """Checks what the template can do.

    Args:
      template: Jinja.
      special_tokens: what it may name, as `bos_token`.
      trained_roles: the roles that are learnt.
      end_tokens: special tokens, one of which may end a turn.
      variables: what else it gets, as `enable_thinking`.

    Raises:
      ValueError: the template cannot say what of the roles is learnt.
    """
    self._template = template
    self._marks = marks_generation(template)
    self._ours = template in TEMPLATES.values()
    self._variables = {**special_tokens, **variables}
    self._end_tokens = tuple(end_tokens)
    # Older trackers of generation are not for several threads.
    self._lock = threading.Lock()
    if self._ours:
      self._variables["trained_roles"] = list(trained_roles)
    elif set(trained_roles) != {"assistant"}:
      raise ValueError(
        f"data_transform.trained_roles is {', '.join(trained_roles)}, but of a"
        " chat template that is not ours only the assistant's turns can be"
        f" told from what introduces them. {_OFFER} for any role."
      )

  def render(self, conversation: Conversation) -> Rendered:
    """Renders a conversation.

    Raises:
      ValueError: the template refuses it, or does not show what is learnt.
    """
    if self._marks:
      return self._by_generation(conversation)
    return self._by_prefixes(conversation)

  def _by_generation(self, conversation: Conversation) -> Rendered:
    text, found = self._text(conversation, conversation.messages, mark=True)
    weights = self._span_weights(conversation, found)
    spans = [
      (begin, end, weight)
      for (begin, end), weight in zip(found, weights)
      if begin < end and weight > 0
    ]
    if not spans and any(w > 0 for w in conversation.weights):
      raise ValueError(
        "the chat template has {% generation %}, but marks nothing of this"
        f" conversation, so nothing would be learnt. {_OFFER}."
      )
    return Rendered(text, spans)

  def _span_weights(
    self, conversation: Conversation, found: Sequence[tuple[int, int]]
  ) -> list[float]:
    """What each span counts for: as the message it came from."""
    roles = self._variables.get("trained_roles", ("assistant",))
    weights = [
      weight
      for message, weight in zip(conversation.messages, conversation.weights)
      if message["role"] in roles
    ]
    if len(weights) == len(found):
      return weights
    if self._ours and len(found) == len(weights) + 1 and "system" in roles:
      # Tools without a system message make one.
      return [0.0, *weights]
    if len(set(weights)) == 1:
      return weights[:1] * len(found)
    raise ValueError(
      f"its {len(weights)} messages to learn have weights that differ, but the"
      f" chat template marks {len(found)} places, so which is whose is not"
      f" known. {_OFFER}, one place a message."
    )

  def _by_prefixes(self, conversation: Conversation) -> Rendered:
    messages = conversation.messages
    whole, _ = self._text(conversation, messages)
    spans = []
    for k, weight in enumerate(conversation.weights):
      if weight <= 0:
        continue
      before, _ = self._text(conversation, messages[:k], prompt=True)
      after = whole
      if k + 1 < len(messages):
        after, _ = self._text(conversation, messages[: k + 1])
      if not after.startswith(before):
        raise ValueError(
          f"the chat template renders message {k} in another way than its own"
          " generation prompt begins it, so what the model would learn is not"
          f" what it is to go on from. {_OFFER}."
        )
      if not whole.startswith(after):
        raise ValueError(
          f"the chat template renders message {k}, or what is before it, in"
          " another way once more messages follow, so what the model would"
          f" learn is not what it is to write. {_OFFER}."
        )
      learnt = after[len(before) :]
      self._check_prompt(messages[k], learnt, k)
      spans.append((len(before), len(before) + self._end(learnt), weight))
    return Rendered(whole, spans)

  def _check_prompt(self, message: dict[str, Any], learnt: str, k: int) -> None:
    """Refuses a turn that begins with what ought to be its prompt."""
    if "add_generation_prompt" in self._template:
      return
    content = message["content"].strip()
    if content and not learnt.lstrip().startswith(content):
      raise ValueError(
        "the chat template has no generation prompt, and what introduces"
        f" message {k} cannot be told from it. {_OFFER}."
      )

  def _end(self, learnt: str) -> int:
    """The end of what is learnt: white space behind an end token is not."""
    stripped = learnt.rstrip()
    return len(stripped if stripped.endswith(self._end_tokens) else learnt)

  def _text(
    self,
    conversation: Conversation,
    messages: list[dict[str, Any]],
    *,
    prompt: bool = False,
    mark: bool = False,
  ) -> tuple[str, list[tuple[int, int]]]:
    import_transformers()
    from jinja2 import TemplateSyntaxError
    from transformers.utils.chat_template_utils import render_jinja_template

    try:
      with self._lock:
        texts, marked = render_jinja_template(
          [messages],
          tools=conversation.tools,
          chat_template=self._template,
          add_generation_prompt=prompt,
          return_assistant_tokens_mask=mark,
          **self._variables,
        )
      texts[0].encode()
    except TemplateSyntaxError as error:
      raise ValueError(
        "model_assets.chat_template is no Jinja template, whatever the record"
        f" holds: line {error.lineno}, {error.message}. Mend it, or leave the"
        " key unset for the tokenizer's own."
      ) from None
    except Exception as error:
      # Of any type, and its message may quote the conversation; it does not
      # where it stands in the template.
      said = str(error)
      why = said if said and said in self._template else type(error).__name__
      raise ValueError(
        f"the chat template cannot render its first {len(messages)} messages"
        f" ({why}). Mend the record. If it is right, the template is not for"
        f" it: {_OFFER}."
      ) from None
    return texts[0], [tuple(span) for span in marked[0]] if mark else []
