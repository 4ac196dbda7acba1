"""What paramiko does with a server: commands, input, terminals, files, forwarding, many channels at once."""
import os
import socket
import threading
import paramiko

client = paramiko.SSHClient()
client.load_host_keys("/run/test/known_hosts")
options = dict(port=2222, username="ada", look_for_keys=False, allow_agent=False, timeout=30)
client.connect("127.0.0.1", key_filename="/run/test/user_ed25519", **options)
transport = client.get_transport()


def run(command, data=b"", **more):
    channel = transport.open_session()
    for name, value in more.get("environment", {}).items():
        channel.set_environment_variable(name, value)
    channel.exec_command(command)
    out, err = channel.makefile("rb"), channel.makefile_stderr("rb")
    feed = threading.Thread(target=lambda: (channel.sendall(data), channel.shutdown_write()))
    feed.start()
    got = out.read(), err.read(), channel.recv_exit_status()
    feed.join()
    return got


assert run("echo out; echo err >&2; exit 7") == (b"out\n", b"err\n", 7)
big = os.urandom(1 << 16) * 80
assert run("cat", big) == (big, b"", 0)
assert run("echo $LANG", environment={"LANG": "C.UTF-8"})[0] == b"C.UTF-8\n"

shell = transport.open_session()
shell.get_pty("vt100", 100, 40)
shell.invoke_shell()
terminal = shell.makefile("rb")
shell.sendall(b"echo $TERM; stty size; exit 3\n")
text = terminal.read()
assert b"vt100" in text and b"40 100" in text, text
assert shell.recv_exit_status() == 3

sftp = client.open_sftp()
with sftp.open("p", "wb") as f:
    f.set_pipelined(True)
    f.write(big)
with sftp.open("p", "rb") as f:
    f.prefetch()
    assert f.read() == big
sftp.rename("p", "q")
assert sftp.stat("q").st_size == len(big) and "q" in sftp.listdir()
sftp.remove("q")
sftp.close()


def echoes(peer):
    peer.sendall(b"hello")
    peer.shutdown(socket.SHUT_WR) if isinstance(peer, socket.socket) else peer.shutdown_write()
    got = b""
    while more := peer.recv(100):
        got += more
    assert got == b"hello", got


echoes(transport.open_channel("direct-tcpip", ("127.0.0.1", 7100), ("127.0.0.1", 1)))
try:
    transport.open_channel("direct-tcpip", ("127.0.0.1", 7999), ("127.0.0.1", 1))
    raise SystemExit("a connection to nobody was opened")
except paramiko.ChannelException as e:
    assert e.code == 2, e

port = transport.request_port_forward("127.0.0.1", 0)
peer = socket.create_connection(("127.0.0.1", port))
channel = transport.accept(30)
peer.sendall(b"hello")
assert channel.recv(100) == b"hello"
channel.close()
assert peer.recv(100) == b""
transport.cancel_port_forward("127.0.0.1", port)

channels = [transport.open_session() for _ in range(10)]
for n, channel in enumerate(channels):
    channel.exec_command("read x; echo ${x}%d" % n)
for n, channel in reversed(list(enumerate(channels))):
    channel.sendall(b"n\n")
    assert channel.makefile("rb").read() == b"n%d\n" % n

client.close()

# New keys while nothing is open: paramiko gives up where a channel ends during a key exchange.
client.connect("127.0.0.1", key_filename="/run/test/user_ed25519", **options)
transport = client.get_transport()
transport.renegotiate_keys()
assert run("echo on")[0] == b"on\n"
client.close()

for name, kind in (("rsa", paramiko.RSAKey), ("ecdsa256", paramiko.ECDSAKey), ("ecdsa384", paramiko.ECDSAKey)):
    client.connect("127.0.0.1", pkey=kind.from_private_key_file("/run/test/user_" + name), **options)
    assert client.exec_command("echo " + name)[1].read() == name.encode() + b"\n"
    client.close()
try:
    client.connect("127.0.0.1", key_filename="/run/test/stranger", **options)
    raise SystemExit("a stranger came in")
except paramiko.AuthenticationException:
    pass
