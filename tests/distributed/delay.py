"""A delay on a network link: a process that forwards frames between two network devices.

It stands in for the kernel's ``netem``, which not every machine has. Run as a script:
``delay.py SECONDS DEVICE DEVICE`` makes both devices, which live as long as the process.
"""

import contextlib
import fcntl
import os
import struct
import sys
import threading
import time
from queue import SimpleQueue

_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
_MOST = 1 << 16  # bytes of a frame


def tap(name: str) -> int:
    """Make a network device whose frames are read and written through a file descriptor.

    Args:
        name: of the device.
    """
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return device


def _read(source: int, frames: SimpleQueue[tuple[float, bytes]], delay: float) -> None:
    while True:
        frame = os.read(source, _MOST)
        frames.put((time.monotonic() + delay, frame))


def _write(target: int, frames: SimpleQueue[tuple[float, bytes]]) -> None:
    while True:
        due, frame = frames.get()
        time.sleep(max(0.0, due - time.monotonic()))
        with contextlib.suppress(OSError):  # the device is down: the frame is lost
            os.write(target, frame)


def _carry(source: int, target: int, delay: float) -> list[threading.Thread]:
    """Begin to carry frames from one device to the other."""
    frames: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
    threads = [
        threading.Thread(target=_read, args=(source, frames, delay)),
        threading.Thread(target=_write, args=(target, frames)),
    ]
    for thread in threads:
        thread.start()
    return threads


if __name__ == "__main__":
    seconds, one, other = float(sys.argv[1]), tap(sys.argv[2]), tap(sys.argv[3])
    for running in (*_carry(one, other, seconds), *_carry(other, one, seconds)):
        running.join()
