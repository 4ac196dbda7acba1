"""Sits at a terminal: starts an ssh on it, types, reads, resizes. argv: what to do, --, the command.

Every wait is for a text on the terminal, and all of them together have forty seconds.
"""
import fcntl
import os
import pty
import signal
import struct
import sys
import termios

what, command = sys.argv[1], sys.argv[3:]


def resize(fd, rows, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


pid, fd = pty.fork()
if pid == 0:
    resize(0, 24, 81)
    if what == "modes":
        mode = termios.tcgetattr(0)
        mode[6][termios.VERASE] = b"\x08"
        mode[6][termios.VINTR] = b"\x1d"
        mode[3] &= ~termios.ECHOK
        termios.tcsetattr(0, termios.TCSANOW, mode)
    os.execvp(command[0], command)

seen = b""
wanted = b""


def late(*_):
    sys.exit("still waiting for %r; on the terminal stands %r" % (wanted, seen))


signal.signal(signal.SIGALRM, late)
signal.alarm(40)


def read():
    global seen
    try:
        data = os.read(fd, 65536)
    except OSError:
        data = b""
    if not data:
        sys.exit("the terminal ended; on it stood %r" % seen)
    seen += data


def until(text):
    "Reads until `text` stands there; forgets everything up to its end and gives it."
    global seen, wanted
    wanted = text
    while text not in seen:
        read()
    before, seen = seen.split(text, 1)
    return before


def type_(text):
    os.write(fd, text)


def ask(line):
    "Types a line; gives what it prints. The marks are put together by the shell, so that the echo is not taken for them."
    type_(b"echo '<''<'; " + line + b"; echo '>''>'\n")
    until(b"<<\r\n")
    return until(b">>\r\n").replace(b"\r\n", b"\n").strip().decode()


def interrupt():
    "Types Ctrl-C and reads the shell's next prompt: what is typed before it is lost with what the interrupt flushes."
    type_(b"\x03")
    until(b"^C")
    until(b"ada@")
    until(b"$ ")


def want(got, wanted):
    if got != wanted:
        sys.exit("got %r, wanted %r" % (got, wanted))


want(ask(b"test -t 0 && echo terminal"), "terminal")
code = 0
if what == "shell":
    want(ask(b"echo $TERM $(test -n \"$SSH_TTY\" && test $(tty) = $SSH_TTY && echo same)"), "xterm same")
    want(ask(b"shopt -q login_shell && echo login"), "login")
    want(ask(b"jobs -p; set -o | grep -c 'monitor.*on'"), "1")
    type_(b"exit 5\n")
    code = 5
elif what == "window":
    want(ask(b"stty size"), "24 81")
    # A trap runs when what is waited for is interrupted; what it waits for must not hold the terminal.
    type_(b"sh -c 'trap \"stty size\" WINCH; echo rea\"\"dy; while :; do sleep 9 < /dev/null > /dev/null 2>&1 & wait; done'\n")
    until(b"ready\r\n")
    for rows, columns in ((50, 132), (1, 1), (1000, 3000)):
        resize(fd, rows, columns)
        until(b"%d %d\r\n" % (rows, columns))
    interrupt()
    want(ask(b"stty size"), "1000 3000")
    type_(b"exit\n")
elif what == "modes":
    modes = ask(b"stty -a").replace(";", "").split("\n")
    words = " ".join(modes)
    for wanted in ("erase = ^H", "intr = ^]", "-echok "):
        if wanted not in words + " ":
            sys.exit("%r is not among %r" % (wanted, words))
    type_(b"exit\n")
elif what == "interrupt":
    type_(b"echo rea''dy; cat\n")
    until(b"ready\r\n")
    type_(b"one line\n")
    until(b"one line\r\none line\r\n")
    interrupt()
    want(ask(b"echo alive"), "alive")
    # Before the shell has the terminal again, an end of input would be the line's and not the shell's.
    until(b"$ ")
    type_(b"\x04")
elif what == "hangup":
    type_(b"bash -c \"trap 'touch hup; exit' HUP; sleep 1000 & echo rea''dy; wait\"\n")
    until(b"ready\r\n")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    sys.exit(0)

while True:
    try:
        if not os.read(fd, 65536):
            break
    except OSError:
        break
_, status = os.waitpid(pid, 0)
got = os.waitstatus_to_exitcode(status)
want(got, code)
