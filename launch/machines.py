"""Starts JAX as the flags ask, and hears when the run is asked to stop."""

import math
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import jax
from ml_collections import ConfigDict

# Seconds after which a process says whom it waits for.
_SAY_AFTER = 5

# JAX's own limit ends a process with a stack trace; it comes after ours.
_LATER = 60


def start(
  mesh: ConfigDict,
  *,
  coordinator_address: str | None,
  num_processes: int | None,
  process_id: int | None,
  cluster: bool,
  connect_timeout: int,
  simulate_devices: int | None,
) -> None:
  """Connects the processes and decides how many CPU devices there are.

  Must run before anything asks JAX for a device. Without a number given, the
  CPU gets as many simulated devices as the mesh's sizes multiply to, shared
  out over the processes: a CPU has no devices of its own to be counted, and a
  mesh that asks for eight can be tried on any machine. Where an accelerator
  is found, this changes nothing.

  Args:
    mesh: `config.mesh`.
    coordinator_address: host:port of process 0, with the two below.
    num_processes: how many processes there are.
    process_id: which of them this one is.
    cluster: ask the cluster's environment instead of the three above.
    connect_timeout: seconds to wait for the other processes; a process that
      has not met them by then ends with exit code 1.
    simulate_devices: CPU devices of this process, or None.

  Raises:
    ValueError: for flags that do not go together, or a coordinator address
      that process 0 cannot listen on.
  """
  named = (coordinator_address, num_processes, process_id)
  if cluster and named != (None, None, None):
    raise ValueError(
      "--distributed asks the cluster for what --coordinator_address,"
      " --num_processes and --process_id say; give one or the other."
    )
  if None in named and named != (None, None, None):
    raise ValueError(
      "--coordinator_address, --num_processes and --process_id belong"
      f" together, got {coordinator_address!r}, {num_processes} and"
      f" {process_id}; give all three, or none to run in one process."
    )
  if num_processes is not None and not 0 <= process_id < num_processes:
    raise ValueError(
      "--process_id counts from 0 to --num_processes - 1, got"
      f" {process_id} of {num_processes}."
    )
  if cluster or num_processes is not None:
    # It would take over SIGTERM, and Orbax would then save by itself.
    jax.config.update("jax_enable_preemption_service", False)
  if cluster:
    with _limited_wait("the cluster's coordinator", connect_timeout):
      jax.distributed.initialize(
        initialization_timeout=connect_timeout + _LATER
      )
  elif num_processes is not None:
    _check_address(coordinator_address, listen=process_id == 0)
    where = f"the coordinator at {coordinator_address}"
    with _limited_wait(where, connect_timeout):
      jax.distributed.initialize(
        coordinator_address,
        num_processes,
        process_id,
        cluster_detection_method="deactivate",
        initialization_timeout=connect_timeout + _LATER,
      )
  _simulate(mesh, simulate_devices, None if cluster else (num_processes or 1))


def _check_address(address: str, *, listen: bool) -> None:
  """Refuses what is no address, or one that this process cannot listen on.

  JAX crashes on a port that another program has, and shares one with another
  run's coordinator, neither of which then finds its processes.
  """
  _, separator, port = address.rpartition(":")
  if not separator or not port.isdecimal() or not 0 < int(port) < 1 << 16:
    raise ValueError(
      "--coordinator_address is host:port, such as 10.0.0.1:9911, got"
      f" {address!r}."
    )
  if not listen or "JAX_COORDINATOR_BIND_ADDRESS" in os.environ:
    return
  both = socket.has_dualstack_ipv6()
  family = socket.AF_INET6 if both else socket.AF_INET
  try:
    # All interfaces, as JAX does; closed again at once.
    socket.create_server(
      ("", int(port)), family=family, dualstack_ipv6=both
    ).close()
  except OSError as error:
    raise ValueError(
      f"Process 0 cannot listen on port {port} of --coordinator_address="
      f"{address}: {os.strerror(error.errno)}. Give all processes an address"
      " with another port, or stop the program that has this one."
    ) from error


@contextmanager
def _limited_wait(where: str, seconds: int) -> Iterator[None]:
  """Says after a while whom this process waits for, and ends it in the end."""

  def tell(message: str) -> None:
    print(message, file=sys.stderr, flush=True)

  def give_up() -> None:
    tell(
      f"Did not meet the other processes through {where} within {seconds} s."
      " Start all of them with the same address, see that it can be reached"
      " from here, or wait longer with --connect_timeout."
    )
    # The thread that waits is inside a call that nothing interrupts.
    os._exit(1)

  waiting = f"waiting for {where} and the other processes, up to {seconds} s"
  timers = [
    threading.Timer(_SAY_AFTER, tell, [waiting]),
    threading.Timer(seconds, give_up),
  ]
  for timer in timers:
    timer.daemon = True
    timer.start()
  try:
    yield
  finally:
    for timer in timers:
      timer.cancel()


def _simulate(
  mesh: ConfigDict, devices: int | None, num_processes: int | None
) -> None:
  """Sets the number of CPU devices, unless the environment has."""
  by_environment = (
    "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    or jax.config.jax_num_cpu_devices >= 0
  )
  if by_environment and devices is not None:
    raise ValueError(
      f"--simulate_devices={devices} and the environment (XLA_FLAGS or"
      " JAX_NUM_CPU_DEVICES) both say how many CPU devices there are; unset"
      " one of them."
    )
  if by_environment:
    return
  if devices is None and num_processes is not None:
    sizes = math.prod(max(1, mesh[axis]) for axis in mesh.axes)
    devices = max(1, sizes // num_processes)
  if devices is not None:
    if devices < 1:
      raise ValueError(f"--simulate_devices must be at least 1, got {devices}.")
    jax.config.update("jax_num_cpu_devices", devices)


@contextmanager
def leave_together() -> Iterator[None]:
  """Ends this process at once if what is inside fails and there are others.

  Leaving the ordinary way would first wait for them, and they wait for this
  one inside a collective. A connection that closes is what tells them.
  """
  try:
    yield
  except Exception:
    if jax.process_count() == 1:
      raise
    traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


class StopSignal:
  """Notes SIGTERM; the run then ends after a step, not inside one."""

  def __init__(self) -> None:
    self.received = False
    signal.signal(signal.SIGTERM, self._note)

  def _note(self, number: int, frame: FrameType | None) -> None:
    del number, frame
    self.received = True
