"""Sits at a terminal and answers what is asked about passwords. argv: the old one, the new one, --, the command.

Prints what stood on the terminal and exits as the command did. All of it has forty seconds.
"""
import os
import pty
import signal
import sys

old, new, command = sys.argv[1], sys.argv[2], sys.argv[4:]
# In this order: each is looked for in what was printed since the last answer.
ANSWERS = (
    (b"etype new password:", new),
    (b"ew password:", new),
    (b"urrent password:", old),
    (b"assword:", old),
)

pid, fd = pty.fork()
if pid == 0:
    os.execvp(command[0], command)

signal.alarm(40)
seen = whole = b""
while True:
    try:
        data = os.read(fd, 65536)
    except OSError:
        break
    if not data:
        break
    seen += data
    whole += data
    for question, answer in ANSWERS:
        if question in seen:
            os.write(fd, answer.encode() + b"\n")
            seen = b""
            break
_, status = os.waitpid(pid, 0)
print(whole.decode(errors="replace").replace("\r", ""))
sys.exit(os.waitstatus_to_exitcode(status))
