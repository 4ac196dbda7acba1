"""A program in a terminal that is looked at: its modes while it runs, and after a change of size."""

import fcntl
import os
import pty
import struct
import sys
import termios

pid, fd = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
out = b""


def until(what):
    global out
    while what not in out:
        out += os.read(fd, 4096)


def resize(rows, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


until(b"ready")
raw = not termios.tcgetattr(fd)[3] & termios.ICANON
resize(44, 77)
until(b"44 77")
os.write(fd, b"typed\r")
until(b"<typed>")
# An escape, or the program's own end.
os.write(fd, b"~." if sys.argv[1] == "escape" else b"\r")
try:
    while more := os.read(fd, 4096):
        out += more
except OSError:
    pass
_, status = os.waitpid(pid, 0)
print("raw", raw, "code", os.waitstatus_to_exitcode(status))
