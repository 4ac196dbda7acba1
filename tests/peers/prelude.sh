# shellcheck shell=bash
# What every row's script begins with. A row is bash under `set -eu -o pipefail`: it succeeds, or says what is wrong.
#   gate            the server's name in $CONF, as the user ada
#   s, sf, sc       ssh, sftp, scp with $CONF
#   by KEY ...      ssh with no other key than this
#   is GOT WANTED   fails and shows both
#   exits N CMD...  CMD has to end with N
set -eu -o pipefail
# What is wrong is said where no row's own redirection hides it; the last steps of a row that failed are shown too.
exec 8>&2 9> ../row.trace
BASH_XTRACEFD=9
T=/run/test
CONF=$T/config
HOMES=/run/home
# What the server says of its own end of a connection, and which server it is; a tunnel has no address of its own.
case $SUBJECT in
    Sshd | Node) HERE='127.0.0.1 2222' SERVER=$SUBJECT ;;
    *) HERE='0.0.0.0 0' SERVER=Node ;;
esac

s() { ssh -F "$CONF" "$@"; }
by() { local key=$1; shift; ssh -F "$T/bare" -i "$key" "$@"; }
sf() { sftp -q -F "$CONF" "$@"; }
sc() { scp -q -F "$CONF" "$@"; }
# The options that know the server by this file: a joined node shows the cluster's certificates, in its name there.
known() {
    case $1:$SUBJECT in
        known_authority:Jump | known_authority:ProxyCommand)
            echo "-o UserKnownHostsFile=$T/home/known_hosts -o HostKeyAlias=gate" ;;
        *) echo "-o UserKnownHostsFile=$T/$1" ;;
    esac
}
fail() { echo "wrong: $*" >&8; exit 1; }
is() { [ "$1" = "$2" ] || fail "got '$1', wanted '$2'"; }
exits() {
    local wanted=$1 got=0
    shift
    "$@" || got=$?
    [ "$got" = "$wanted" ] || fail "'$*' ended with $got, wanted $wanted"
}
# Standard input has a line that grep finds. All of it is read: whoever still writes when `grep -q` leaves ends by a broken
# pipe, and so does the row.
has() { grep "$@" > /dev/null; }
# Waits until a command succeeds, as long as the row may take: for what no process tells.
until_so() { local -; set +x; until "$@"; do read -rt 0.1 <> <(:) || :; done; }
# The file PATH appears.
appears() { until_so test -e "$1"; }
# Something listens on the TCP port or unix path.
listens() {
    case $1 in
        /*) appears "$1" ;;
        *) until_so eval "ss -Hltn 'sport = :$1' | grep -q ." ;;
    esac
}
# A terminal by the client CMD, to the account whose home is HOME: raw here, told its size, ended by the program or by an
# escape.
a_terminal() {
    local home=$1
    shift
    cat > "$home/ask" <<'END'
echo ready
until [ "$(stty size)" = '44 77' ]; do read -rt 0.1 <> <(:) || :; done
stty size
read -r x
echo "<$x>"
END
    chmod 644 "$home/ask"
    t() { python "$PEERS/python/raw.py" "$@"; }
    is "$(t end "$@" "bash -c '. ./ask; read x; exit 5'")" 'raw True code 5'
    is "$(t escape "$@" "bash -c '. ./ask; cat'")" 'raw True code 255'
    rm "$home/ask"
}
# SIZE bytes that do not compress, always the same.
noise() { openssl enc -aes-128-ctr -nosalt -K 0 -iv 0 < /dev/zero 2> /dev/null | head -c "$1" || :; }
# Without FILE the row is skipped, and named.
needs() { [ -e "$1" ] || { echo "$1 is missing" >&8; exit 77; }; }
python() { /usr/bin/python3 -W ignore "$@"; }
set -x
