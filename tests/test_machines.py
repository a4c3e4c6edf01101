"""launch/machines.py: flags that do not go together, and waiting in vain."""

import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ml_collections import ConfigDict

LAUNCH = Path(__file__).parent.parent / "launch"
sys.path.insert(0, str(LAUNCH))

import machines  # noqa: E402


def start(**flags):
  unset = dict.fromkeys(("coordinator_address", "num_processes", "process_id"))
  more = {"cluster": False, "connect_timeout": 9, "simulate_devices": None}
  machines.start(
    ConfigDict({"axes": ("data",), "data": 2}), **unset | more | flags
  )


def test_flags_of_processes_belong_together():
  with pytest.raises(ValueError, match="give all three"):
    start(num_processes=2, process_id=0)
  with pytest.raises(ValueError, match="counts from 0"):
    start(coordinator_address="127.0.0.1:1", num_processes=2, process_id=2)
  with pytest.raises(ValueError, match="give one or the other"):
    start(cluster=True, num_processes=2)


def test_the_environment_and_the_flag_do_not_both_count_devices():
  with pytest.raises(ValueError, match="--simulate_devices=4 and the env"):
    start(simulate_devices=4)


@pytest.mark.parametrize("address", ["localhost", "host:", "host:x", "h:70000"])
def test_an_address_without_a_port_is_refused(address):
  with pytest.raises(ValueError, match=rf"is host:port.*got '{address}'"):
    start(coordinator_address=address, num_processes=2, process_id=1)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_port_that_another_program_has_is_refused(host, shared):
  with socket.socket() as other:
    # Another run's coordinator shares its port with whoever asks.
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, shared)
    other.bind((host, 0))
    other.listen()
    address = f"127.0.0.1:{other.getsockname()[1]}"
    with pytest.raises(
      ValueError,
      match=f"cannot listen on port .*={address}: Address already in use",
    ):
      start(coordinator_address=address, num_processes=2, process_id=0)


@pytest.mark.parametrize("process_id", [0, 1])
def test_waiting_in_vain_is_said_and_ends(process_id):
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{free.getsockname()[1]}"
  program = f"""
import sys
sys.path[:0] = [{str(LAUNCH)!r}]
import machines
machines._SAY_AFTER = 1
machines.start(
  None, coordinator_address={address!r}, num_processes=2,
  process_id={process_id}, cluster=False, connect_timeout=3,
  simulate_devices=None,
)
"""
  began = time.monotonic()
  done = subprocess.run(
    [sys.executable, "-c", program],
    capture_output=True,
    text=True,
    timeout=120,
    check=False,
  )
  assert done.returncode == 1, done.stderr
  assert re.search(f"^waiting for the coordinator at {address}", done.stderr)
  assert re.search(
    rf"Did not meet .* at {address} within 3 s\..*--connect_timeout\.\n$",
    done.stderr,
  )
  assert time.monotonic() - began > 3
