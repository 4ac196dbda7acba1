"""Receivers of audit events: syslog over TLS (OpenSSL's), OTLP logs and a webhook.

receivers.py CERTIFICATE KEY SIGNING_KEY: appends the number of each event that it has taken to syslog.got, otlp.got or webhook.got
in this directory, and prints a line when it listens. A webhook whose signature is wrong is refused.
"""

import hashlib
import hmac
import http.server
import json
import re
import socket
import ssl
import sys
import threading

CERTIFICATE, KEY, SIGNING_KEY = sys.argv[1:]
SYSLOG, OTLP, WEBHOOK = 6514, 4318, 8443


def take(name, numbers):
    with open(name + ".got", "a", encoding="ascii") as got:
        got.writelines(f"{number}\n" for number in numbers)


def tls():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, KEY)
    return context


def messages(stream):
    with stream, stream.makefile("rb") as frames:
        while True:
            length = b""
            while not length.endswith(b" "):
                digit = frames.read(1)
                if not digit:
                    # Everything was read: say so.
                    stream.unwrap()
                    return
                length += digit
            message = frames.read(int(length)).decode("ascii")
            head = re.match(r'<8[46]>1 \S+ \S+ fleetgate - \S+ \[meta sequenceId="(\d+)"\] ', message)
            json.loads(message[head.end():])
            take("syslog", [head.group(1)])


def syslog():
    listener = socket.create_server(("127.0.0.1", SYSLOG))
    context = tls()

    def serve(connection):
        try:
            messages(context.wrap_socket(connection, server_side=True))
        except OSError as error:
            print("syslog:", error, file=sys.stderr)

    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=[connection], daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = 200
        if self.path == "/v1/logs":
            logs = json.loads(body)["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
            take("otlp", [record["attributes"][0]["value"]["intValue"] for record in logs])
        else:
            with open(SIGNING_KEY, "rb") as file:
                signature = hmac.new(file.read().strip(), body, hashlib.sha256).hexdigest()
            if self.headers["Fleetgate-Signature"] == "sha256=" + signature and self.headers["X-Token"] == "let me in":
                take("webhook", [json.loads(line)["id"] for line in body.splitlines()])
            else:
                status = 401
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


def serve(port, with_tls):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    if with_tls:
        server.socket = tls().wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


serve(OTLP, False)
serve(WEBHOOK, True)
threading.Thread(target=syslog, daemon=True).start()
print("listening", flush=True)
sys.stdin.read()
