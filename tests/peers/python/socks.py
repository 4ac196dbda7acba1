"""A SOCKS 5 client that leaves the look-up of the name to the other side: argv PROXY-PORT NAME PORT."""
import socket
import struct
import sys

proxy, name, port = int(sys.argv[1]), sys.argv[2].encode(), int(sys.argv[3])
peer = socket.create_connection(("127.0.0.1", proxy))
files = peer.makefile("rb")
peer.sendall(b"\x05\x01\x00")
assert files.read(2) == b"\x05\x00"
peer.sendall(b"\x05\x01\x00\x03" + bytes([len(name)]) + name + struct.pack(">H", port))
answer = files.read(10)
assert answer[:2] == b"\x05\x00", answer
peer.sendall(sys.stdin.buffer.read())
peer.shutdown(socket.SHUT_WR)
sys.stdout.buffer.write(files.read())
