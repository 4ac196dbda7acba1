"""A service that sends back what it is sent, on a port and a unix socket (argv: PORT PATH), and its client, which
sends its input, says that this is the end, and prints what comes back until the other side's end (argv: to HOST PORT).
"""
import socket
import sys
import threading


def echo(peer):
    with peer:
        try:
            while data := peer.recv(1 << 16):
                peer.sendall(data)
        except OSError:
            pass


def serve(listener):
    while True:
        peer, _ = listener.accept()
        threading.Thread(target=echo, args=(peer,), daemon=True).start()


def send(peer):
    try:
        while data := sys.stdin.buffer.read1(1 << 16):
            peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
    except OSError:
        pass


if sys.argv[1] == "to":
    peer = socket.create_connection((sys.argv[2], int(sys.argv[3])))
    threading.Thread(target=send, args=(peer,), daemon=True).start()
    while data := peer.recv(1 << 16):
        sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
else:
    tcp = socket.create_server(("127.0.0.1", int(sys.argv[1])))
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(sys.argv[2])
    unix.listen()
    threading.Thread(target=serve, args=(unix,), daemon=True).start()
    serve(tcp)
