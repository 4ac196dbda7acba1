# shellcheck shell=bash
# Sessions and forwards where a PAM module gives each PAM session a network and a /tmp of its own.
NOTES=$T/pam.notes
# The next PAM sessions are of a service with this line beside those of the node's package.
service() {
    for name in fleetgate sshd; do
        printf '%s\n' '@include common-auth' '@include common-account' "$@" '@include common-session' \
            > "/etc/pam.d/$name"
    done
}
apart() {
    cc -shared -fPIC -O1 -o "$T/pam_apart.so" "$PEERS/pam/apart.c"
    service "session required $T/pam_apart.so $NOTES"
}
# What the PAM sessions since FORGET noted, once as many have closed as have opened.
forget() { rm -f "$NOTES"; }
closed() { [ "$(grep -c open "$NOTES")" = "$(grep -c close "$NOTES")" ]; }
noted() { until_so closed; paste -sd ' ' "$NOTES"; }
# In a session: says that it is ready, gives `inside` to the first that connects to this port or unix path, and ends with
# its standard input.
giving() {
    case $1 in
        /*) local make="socket.socket(socket.AF_UNIX); l.bind(\"$1\"); l.listen()" ;;
        *) local make="socket.create_server((\"127.0.0.1\", $1))" ;;
    esac
    echo "python3 -c 'import socket; l = $make; print(\"ready\", flush=True); p = l.accept()[0]; p.sendall(b\"inside\"); p.close(); input()'"
}
# What is given at a unix path here.
taking() { python -c 'import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(9).decode())' "$1"; }
# A session with these options and this command, until `over`; its output is the file `said`.
begin() {
    mkfifo go
    s "$@" < go > said 2> errors &
    exec 7> go
    until_so grep -q ready said
}
over() { exec 7>&-; wait; }
# The beginning of what a server says on this port of loopback.
from_port() { echo "bash -c 'exec 3<>/dev/tcp/127.0.0.1/$1 && head -c 3 <&3' 2> /dev/null"; }
# Whether nothing listens on this port here.
nothing_on() { [ -z "$(ss -Hltn "sport = :$1")" ] && echo nothing; }
