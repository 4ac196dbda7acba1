"""A service manager for one service, as far as restarts go: it keeps the sockets that the service gives it (FDSTORE of
sd_notify(3)) and hands them to its next process. `manager.py WORDS…` starts it and says `ready`; each SIGHUP ends its main
process, and that one alone, starts it again, and is answered with `ready`."""

import os
import selectors
import signal
import socket
import sys

FIRST = 3
name = f"fleetgate-manager-{os.urandom(8).hex()}"
said = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
said.bind("\0" + name)
kept = []  # (name, descriptor)


def start():
    pid = os.fork()
    if pid:
        return pid
    # First out of the way of each other, then to their places; descriptors of dup2 are inherited.
    high = [os.dup2(fd, 200 + at) for at, (_, fd) in enumerate(kept)]
    os.closerange(FIRST, 200)
    for at, fd in enumerate(high):
        os.dup2(fd, FIRST + at)
        os.close(fd)
    os.environ["NOTIFY_SOCKET"] = "@" + name
    os.environ["LISTEN_PID"] = str(os.getpid())
    os.environ["LISTEN_FDS"] = str(len(kept))
    os.environ["LISTEN_FDNAMES"] = ":".join(n for n, _ in kept)
    os.execvp(sys.argv[1], sys.argv[1:])


def hear():
    """Takes one message; whether it says that the service is ready."""
    message, fds, _, _ = socket.recv_fds(said, 4096, 64)
    lines = dict(line.split("=", 1) for line in message.decode().splitlines() if "=" in line)
    stored = lines.get("FDNAME", "stored")
    if lines.get("FDSTORE") == "1":
        kept.extend((stored, fd) for fd in fds)
    else:
        for fd in fds:
            os.close(fd)
    if lines.get("FDSTOREREMOVE") == "1":
        for entry in [entry for entry in kept if entry[0] == stored]:
            os.close(entry[1])
            kept.remove(entry)
    return lines.get("READY") == "1"


def until_ready():
    while not hear():
        pass
    print("ready", flush=True)


def restart(service):
    os.kill(service, signal.SIGTERM)
    os.waitpid(service, 0)
    # What it said last belongs to it, and is heard before the next one starts.
    said.setblocking(False)
    try:
        while True:
            hear()
    except BlockingIOError:
        said.setblocking(True)
    return start()


asked, ask = socket.socketpair()
ask.setblocking(False)
signal.set_wakeup_fd(ask.fileno())
signal.signal(signal.SIGHUP, lambda *_: None)
service = start()
until_ready()
events = selectors.DefaultSelector()
events.register(said, selectors.EVENT_READ)
events.register(asked, selectors.EVENT_READ)
while True:
    for key, _ in events.select():
        if key.fileobj is said:
            hear()
        else:
            asked.recv(1)
            service = restart(service)
            until_ready()
