"""An X display that only checks who comes (argv: server PORT COOKIE), and a program that greets the display of its
environment with the cookie that xauth has for it (argv: client). The first message is that of the X protocol,
section "Connection Setup".
"""
import os
import socket
import struct
import subprocess
import sys

NAME = b"MIT-MAGIC-COOKIE-1"
ANSWER = b"\x00\x04\x0b\x00\x00\x00\x01\x00welc"


def padded(data):
    return data + bytes(-len(data) % 4)


if sys.argv[1] == "server":
    cookie = bytes.fromhex(sys.argv[3])
    listener = socket.create_server(("127.0.0.1", int(sys.argv[2])))
    peer, _ = listener.accept()
    with peer, peer.makefile("rb") as file:
        names, cookies = struct.unpack("<2x4x2H2x", file.read(12))
        got = file.read(len(padded(bytes(names))) + len(padded(bytes(cookies))))
        if got != padded(NAME) + padded(cookie):
            sys.exit("the display was greeted with %r" % got)
        peer.sendall(ANSWER)
        file.read()
else:
    display = os.environ["DISPLAY"]
    number = int(display.rsplit(":", 1)[1].split(".")[0])
    listed = subprocess.run(["xauth", "list", display], capture_output=True, text=True, check=True).stdout
    cookie = bytes.fromhex(listed.split()[-1])
    peer = socket.create_connection(("127.0.0.1", 6000 + number))
    with peer, peer.makefile("rb") as file:
        peer.sendall(struct.pack("<cxHHHH2x", b"l", 11, 0, len(NAME), len(cookie)) + padded(NAME) + padded(cookie))
        if file.read(len(ANSWER)) != ANSWER:
            sys.exit("the display answered something else")
        print("the display answered")
