r"""A conversation in, the same without its oldest turns out.

  system | user assistant | user assistant tool assistant | user assistant
           ~~~~~~~~~~~~~~ goes first

A turn begins with a user's message and ends before the next one's, so no
answer loses its question and no tool its call.
"""

from hpgrain.transforms.messages import Conversation


def turn_begins(conversation: Conversation) -> list[int]:
  """Returns where turns begin, the first of them behind system messages."""
  roles = [message["role"] for message in conversation.messages]
  begin = 0
  while begin < len(roles) and roles[begin] == "system":
    begin += 1
  return [begin] + [
    k for k in range(begin + 1, len(roles)) if roles[k] == "user"
  ]


def without_oldest_turns(
  conversation: Conversation, count: int
) -> Conversation:
  """The conversation without some turns; system messages before them stay.

  Args:
    conversation: any.
    count: of turns that go, fewer than there are.
  """
  begins = turn_begins(conversation)
  begin, end = begins[0], begins[count]
  return Conversation(
    conversation.messages[:begin] + conversation.messages[end:],
    conversation.weights[:begin] + conversation.weights[end:],
    conversation.tools,
  )
