r"""A conversation in, the same without its oldest turn out.

  system | user assistant | user assistant tool assistant | user assistant
           ~~~~~~~~~~~~~~ goes first

A turn begins with a user's message and ends before the next one's, so no
answer loses its question and no tool its call.
"""

from hpgrain.transforms.messages import Conversation


def without_oldest_turn(conversation: Conversation) -> Conversation | None:
  """The conversation without its first turn; system messages before it stay.

  Returns:
    None where there is but one turn left.
  """
  roles = [message["role"] for message in conversation.messages]
  begin = 0
  while begin < len(roles) and roles[begin] == "system":
    begin += 1
  later = [k for k in range(begin + 1, len(roles)) if roles[k] == "user"]
  if not later:
    return None
  end = later[0]
  return Conversation(
    conversation.messages[:begin] + conversation.messages[end:],
    conversation.weights[:begin] + conversation.weights[end:],
    conversation.tools,
  )
