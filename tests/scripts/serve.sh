# shellcheck shell=bash
# Words for the tests of `cluster/serve.rs`.
export FLEETGATE_HOME=/run/test/home
SOCKET=/run/test/home/mux/checks
serve() { "$F" check serve --file checks.toml "$@"; }
# The same in the background: `$!` is the program itself and not a shell around it.
serve_on() { exec "$F" check serve --file checks.toml "$@"; }
# The page, as somebody reads it: `page` by the socket, `page PORT [TOKEN]` by a port. The status line is the first line.
# shellcheck disable=SC2120 # Its words are given in the tests.
page() {
    python3 - "$SOCKET" "$@" <<'END'
import socket, sys
if len(sys.argv) > 2:
    s = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
else:
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
token = "Authorization: Bearer %s\r\n" % sys.argv[3] if len(sys.argv) > 3 else ""
s.sendall(("GET /metrics HTTP/1.1\r\n%s\r\n" % token).encode())
print(b"".join(iter(lambda: s.recv(65536), b"")).decode().replace("\r", ""), end="")
END
}
# Waits until a line of the page is this one, or until none is.
shows() { until page 2> /dev/null | grep -qxF "$1"; do sleep 0.1; done; }
forgets() { while page | grep -qF "$1"; do sleep 0.1; done; }
