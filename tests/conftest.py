"""Eight simulated CPU devices, absl flags, and hypothesis profiles."""

import os
import signal

# Read when jax first makes its backend, so before anything imports it.
os.environ["JAX_PLATFORMS"] = "cpu"
_DEVICES = "--xla_force_host_platform_device_count=8"
if _DEVICES not in os.environ.get("XLA_FLAGS", ""):
  os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_DEVICES}"

# A process that a shell started in the background ignores an interrupt, and so
# would those that tests start to interrupt them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
  signal.signal(signal.SIGINT, signal.default_int_handler)

import hypothesis  # noqa: E402
from absl import flags  # noqa: E402

# Grain's worker processes read absl flags, which only app.run parses.
flags.FLAGS.mark_as_parsed()

for _name, _examples in (("default", 15), ("thorough", 500)):
  hypothesis.settings.register_profile(
    _name,
    max_examples=_examples,
    deadline=None,
    derandomize=_name == "default",
    print_blob=True,
    suppress_health_check=[
      hypothesis.HealthCheck.too_slow,
      hypothesis.HealthCheck.data_too_large,
      hypothesis.HealthCheck.filter_too_much,
    ],
  )
hypothesis.settings.load_profile(
  os.environ.get("HYPOTHESIS_PROFILE", "default")
)
