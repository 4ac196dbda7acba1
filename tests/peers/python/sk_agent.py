"""An ssh-agent that holds one security key made of software. argv: the key's type, the socket, where its public
key goes. It signs as a token that was touched would: over the application, flags, a counter and the message's digest.
"""
import hashlib
import os
import socket
import struct
import sys
from base64 import b64encode
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, utils

kind, path, public = sys.argv[1:4]
APPLICATION = b"ssh:"
FAILURE, IDENTITIES, ANSWER, SIGN, SIGNED = 5, 11, 12, 13, 14


def string(data):
    return struct.pack(">I", len(data)) + data


def mpint(n):
    return string(n.to_bytes(n.bit_length() // 8 + 1, "big"))


if "ed25519" in kind:
    key = ed25519.Ed25519PrivateKey.generate()
    raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    blob = string(kind.encode()) + string(raw) + string(APPLICATION)
else:
    key = ec.generate_private_key(ec.SECP256R1())
    point = key.public_key().public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
    )
    blob = string(kind.encode()) + string(b"nistp256") + string(point) + string(APPLICATION)

counter = 0


def sign(message):
    global counter
    counter += 1
    tail = struct.pack(">BI", 1, counter)
    signed = hashlib.sha256(APPLICATION).digest() + tail + hashlib.sha256(message).digest()
    if "ed25519" in kind:
        signature = key.sign(signed)
    else:
        r, s = utils.decode_dss_signature(key.sign(signed, ec.ECDSA(hashes.SHA256())))
        signature = mpint(r) + mpint(s)
    return string(kind.encode()) + string(signature) + tail


def read(peer, n):
    data = b""
    while len(data) < n:
        more = peer.recv(n - len(data))
        if not more:
            raise EOFError
        data += more
    return data


listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen(8)
with open(public + ".new", "w") as f:
    f.write("%s %s software\n" % (kind, b64encode(blob).decode()))
os.rename(public + ".new", public)
while True:
    peer, _ = listener.accept()
    try:
        while True:
            request = read(peer, struct.unpack(">I", read(peer, 4))[0])
            if request[0] == IDENTITIES:
                answer = struct.pack(">BI", ANSWER, 1) + string(blob) + string(b"software")
            elif request[0] == SIGN:
                at = 1 + 4 + struct.unpack(">I", request[1:5])[0]
                length = struct.unpack(">I", request[at : at + 4])[0]
                answer = bytes([SIGNED]) + string(sign(request[at + 4 : at + 4 + length]))
            else:
                answer = bytes([FAILURE])
            peer.sendall(string(answer))
    except EOFError:
        peer.close()
