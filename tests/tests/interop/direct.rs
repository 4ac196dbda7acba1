//! `fleetgate ssh --direct` against Debian's sshd and the node: what people do with ssh they do with it, and get the same
//! bytes, exit codes and words.

use fleetgate_tests::peer::{Row, drive_directly};

/// `f` is the client as ada, `g` the same without an account; `bg` in the background until `end`.
fn table(rows: &[(&str, &str)]) -> Vec<Row> {
    let fleetgate = match std::env::var_os("FLEETGATE_BIN") {
        Some(_) => fleetgate_tests::fleetgate().display().to_string(),
        None => String::new(),
    };
    let begin = format!(
        "FG={fleetgate}
G='ssh --direct -i /run/test/user_ed25519 -o UserKnownHostsFile=/run/test/known_hosts -o StrictHostKeyChecking=yes'
g() {{ $FG $G \"$@\"; }}
f() {{ g -l ada \"$@\"; }}
at=127.0.0.1:2222
bg() {{ $FG $G -l ada -N -o ExitOnForwardFailure=yes \"$@\" $at & bg=$!; }}
end() {{ kill $bg; wait $bg || :; }}
says() {{ is \"$(echo hello | nc -N \"$@\")\" hello; }}
echoes() {{ python $PEERS/python/echo.py 7100 $PWD/echo.sock & listens 7100; listens $PWD/echo.sock; chmod 777 echo.sock . ..; }}
"
    );
    rows.iter()
        .map(|(name, script)| Row::new(*name, format!("{begin}{script}")))
        .collect()
}

#[test]
fn sessions_are_as_with_ssh() {
    drive_directly(&table(&[
        ("true", "f $at true < /dev/null"),
        ("exit codes", "for n in 0 1 2 126 127 254 255; do exits $n f $at \"exit $n\" < /dev/null; done"),
        ("exit by a signal", "exits 255 f -v $at 'kill -KILL $$' < /dev/null 2> err; grep -q SIGKILL err"),
        (
            "stdout and stderr stay apart",
            "f $at 'echo out; echo err >&2' < /dev/null > out 2> err; is \"$(cat out)\" out; is \"$(cat err)\" err",
        ),
        (
            "every byte, both ways",
            "printf \"$(printf '\\\\x%02x' {0..255})\" > in; f $at cat < in > out; cmp in out
             cat in | f $at cat | cmp - in",
        ),
        (
            "20 MB from a file, from a pipe, to a pipe, to a file",
            "noise 20M > in; sum=$(sha256sum < in)
             is \"$(f $at sha256sum < in)\" \"$sum\"; is \"$(cat in | f $at sha256sum)\" \"$sum\"
             cp in /run/home/ada/in; chmod 644 /run/home/ada/in
             is \"$(f -n $at 'cat in' | sha256sum)\" \"$sum\"; f -n $at 'cat in' > out; cmp in out
             is \"$(f $at cat < in | sha256sum)\" \"$sum\"; rm /run/home/ada/in",
        ),
        (
            "10 MB on stdout and on stderr at once",
            "f -n $at 'head -c 10M /dev/zero & head -c 10M /dev/zero | tr \\\\0 x >&2; wait' > out 2> err
             is \"$(stat -c %s out err | xargs)\" '10485760 10485760'; is \"$(tr -d x < err | wc -c)\" 0",
        ),
        (
            "stdin half-closed: output after its end",
            "is \"$(printf abc | f $at 'cat; echo; echo after')\" $'abc\\nafter'",
        ),
        (
            "stdin that the program closes early, and that nobody reads",
            "(head -c 20M /dev/zero || :) | f $at 'head -c 10 | wc -c; exec <&-; echo on' > out
             is \"$(cat out)\" $'10\\non'; (head -c 20M /dev/zero || :) | exits 4 f $at 'exit 4'",
        ),
        ("-n reads nothing", "is \"$(echo text | (f -n $at cat; cat))\" text"),
        (
            "a reader that goes away ends the program",
            "f -n $at 'echo $$; exec yes' | head -n 1 > pid || :; f -n $at \"tail --pid=$(cat pid) -f /dev/null\"",
        ),
        (
            "nonblocking stays what it was: the other end of standard output is not touched",
            "f $at true < /dev/null | python -c 'import fcntl; print(fcntl.fcntl(0, 3) & 2048)' > out; is \"$(cat out)\" 0",
        ),
        (
            "environment",
            "is \"$(LC_X=1 f -n -o 'SendEnv=LC_*' -o SetEnv=LANG=C $at 'echo $LC_X $LANG')\" '1 C'",
        ),
        (
            "-s, a subsystem",
            "(printf '\\0\\0\\0\\5\\1\\0\\0\\0\\3'; read -rt 2 <> <(:) || :) | f -s $at sftp | head -c 5 | od -An -tx1 > out
             grep -q ' 02$' out",
        ),
        (
            "a terminal: raw here, told its size, ended by the program or by an escape",
            "a_terminal /run/home/ada $FG $G -l ada -t $at",
        ),
        ("-tt without a terminal", "f -tt $at tty < /dev/null | has /dev/pts/"),
        (
            "-W",
            "echoes; is \"$(echo hello | f -W 127.0.0.1:7100 $at)\" hello
             exits 255 f -W 127.0.0.1:7999 $at < /dev/null 2> err; grep -q 127.0.0.1 err",
        ),
        (
            "-A",
            "eval $(ssh-agent) > /dev/null; ssh-add -q $T/user_rsa; keys=$(ssh-add -l)
             is \"$(f -n -A $at ssh-add -l)\" \"$keys\"; is \"$(f -n -a $at 'echo ${SSH_AUTH_SOCK-none}')\" none
             ssh-agent -k > /dev/null",
        ),
        (
            "a server that says nothing is given up",
            "mkfifo hold; nc -l 127.0.0.1 7102 < hold > /dev/null & exec 4> hold
             listens 7102; exits 255 timeout 20 $FG ssh --direct -n -o ConnectTimeout=1 -i $T/user_ed25519 -l ada 127.0.0.1:7102 true 2> err
             grep -q 'in time' err",
        ),
        (
            "a connection that is cut",
            "mkfifo up down; exec 5<> up 6<> down
             python - <<'END' &
import socket, os, threading
l = socket.create_server(('127.0.0.1', 7103))
c, _ = l.accept()
s = socket.create_connection(('127.0.0.1', 2222))
def pump(a, b):
    try:
        while d := a.recv(65536): b.sendall(d)
    except OSError: pass
for p in ((c, s), (s, c)): threading.Thread(target=pump, args=p, daemon=True).start()
open('up', 'rb').readline()
os._exit(0)
END
             listens 7103; grep -o 'ssh-ed25519 .*' $T/known_hosts | head -n 1 | sed 's/^/[127.0.0.1]:7103 /' > k
             $FG ssh --direct -n -i $T/user_ed25519 -o UserKnownHostsFile=k -l ada 127.0.0.1:7103 'echo up; sleep 1000' > out 2> err & c=$!
             until_so test -s out; echo cut > up; code=0; wait $c || code=$?; is $code 255; grep -q 'connection was lost' err",
        ),
    ]));
}

#[test]
fn logins_are_as_with_ssh() {
    drive_directly(&table(&[
        (
            "keys of every kind, and certificates",
            "for k in user_ed25519 user_ecdsa256 user_ecdsa384 user_rsa cert_ed25519 cert_ecdsa256 cert_rsa; do
                 $FG ssh --direct -n -i $T/$k -o UserKnownHostsFile=$T/known_hosts -l ada $at true; done",
        ),
        (
            "keys of the agent",
            "eval $(ssh-agent) > /dev/null; ssh-add -q $T/stranger; ssh-add -q $T/user_rsa; ssh-add -q $T/user_ed25519
             $FG ssh --direct -n -o UserKnownHostsFile=$T/known_hosts -l ada $at true; ssh-agent -k > /dev/null",
        ),
        (
            "a key that is not let in",
            "exits 255 $FG ssh --direct -n -o BatchMode=yes -i $T/user_ca -o UserKnownHostsFile=$T/known_hosts -l ada $at true 2> err
             grep -q 'does not let ada in' err",
        ),
        (
            "hosts: an authority, a new one, a changed one, one that is unknown",
            "h() { $FG ssh --direct -n -i $T/user_ed25519 -l ada -o UserKnownHostsFile=$PWD/$1 -o StrictHostKeyChecking=$2 $at true; }
             cp $T/known_authority a; h a yes
             exits 255 h none yes 2> err; grep -q 'nobody here knows' err
             h new accept-new 2> err; grep -q 'now known' err; h new yes
             sed 's/.*/[127.0.0.1]:2222 &/' $T/stranger.pub > bad
             exits 255 h bad yes 2> err; grep -q 'HAS CHANGED\\|nobody here' err
             cp $T/known_hosts k; ssh-keygen -q -H -f k > /dev/null 2>&1; h k yes
             sed 's/^/@revoked /' $T/known_hosts > r; exits 255 h r no 2> err; grep -q revoked err",
        ),
        (
            "nobody is there",
            "exits 255 f -n 127.0.0.1:1 true 2> err; grep -q refused err; exits 255 f -n no-such-name.test true 2> err; [ -s err ]",
        ),
        (
            "--explain counts the round trips",
            "e() { $FG ssh --direct -n -i $T/user_ed25519 -o UserKnownHostsFile=$T/known_authority -l ada $at \"$@\" true 2> err; }
             # TCP, and two of SSH; Debian's sshd begins with another method, which costs one more. What the server says
             # without being asked may be there before this side is ready to wait for it: never more, and most times so many.
             if [ $SUBJECT = Sshd ]; then most=4; else most=3; fi; trips=0
             for n in {1..20}; do
                 [ $trips != $most ] || break
                 e --explain=json; trips=$(python -c 'import json; print(json.loads(open(\"err\").read().splitlines()[-1])[\"round_trips\"][\"client-node\"])')
                 [ $trips -le $most ] || fail \"$trips round trips\"
             done; is $trips $most
             e --explain; grep -q 'round trips: . client-node' err",
        ),
    ]));
}

#[test]
fn forwards_are_as_with_ssh() {
    drive_directly(&table(&[
        ("-L", "echoes; bg -L 7001:127.0.0.1:7100; listens 7001; says 127.0.0.1 7001; end"),
        (
            "-L between ports and unix sockets",
            "echoes; bg -L 7001:$PWD/echo.sock -L $PWD/in.sock:127.0.0.1:7100; listens 7001; listens $PWD/in.sock
             says 127.0.0.1 7001; says -U in.sock; end; [ ! -e in.sock ]",
        ),
        ("-R", "echoes; bg -R 7002:127.0.0.1:7100; listens 7002; says 127.0.0.1 7002; end"),
        (
            "-R from a unix socket to a unix socket",
            "echoes; bg -R /run/home/ada/r.sock:$PWD/echo.sock; listens /run/home/ada/r.sock
             says -U /run/home/ada/r.sock; end; rm -f /run/home/ada/r.sock",
        ),
        (
            "-R on a port that the server chooses, beside a command",
            "echoes; mkfifo hold; exec 4<> hold; f -R 0:127.0.0.1:7100 $at 'read x' < hold 2> log & bg=$!
             until_so grep -q Allocated log; port=$(sed -n 's/^Allocated port \\([0-9]*\\) for.*/\\1/p' log)
             says 127.0.0.1 $port; echo >&4; wait $bg",
        ),
        (
            "-R where it is in use already",
            "echoes; exits 255 f -N -o ExitOnForwardFailure=yes -R 127.0.0.1:7100:127.0.0.1:1 $at 2> err
             grep -q 'does not listen' err",
        ),
        (
            "-D by SOCKS 4, 4a and 5",
            "echoes; bg -D 7001; listens 7001; for v in 4 5; do says -X $v -x 127.0.0.1:7001 127.0.0.1 7100; done
             is \"$(echo hello | python $PEERS/python/socks.py 7001 gate.test 7100)\" hello; end",
        ),
        (
            "20 MB both ways through -L and -R, thirty at once",
            "echoes; noise 20M > in; bg -L 7001:127.0.0.1:7100 -R 7002:127.0.0.1:7100; listens 7001; listens 7002
             for port in 7001 7002; do python $PEERS/python/echo.py to 127.0.0.1 $port < in | cmp - in; done
             noise 200K > in; all=()
             for n in {1..30}; do python $PEERS/python/echo.py to 127.0.0.1 7001 < in | cmp - in & all+=($!); done
             for p in \"${all[@]}\"; do wait $p; done; end",
        ),
        (
            "the end waits for a reader that is slow",
            "echoes; noise 20M > in; bg -L $PWD/slow:127.0.0.1:7100; until_so test -e slow
             nc -NU slow < in | { head -c 19M; sleep 1; cat; } | cmp - in; end",
        ),
        (
            "a connection that stands still holds up no other",
            "echoes; bg -L 7001:127.0.0.1:7100; listens 7001; mkfifo still
             python $PEERS/python/echo.py to 127.0.0.1 7001 < /dev/zero > still & exec 3< still
             head -c 1M <&3 > /dev/null; noise 5M > in
             python $PEERS/python/echo.py to 127.0.0.1 7001 < in | cmp - in; end",
        ),
        (
            "where nobody listens",
            "bg -L 7001:127.0.0.1:7999; listens 7001; is \"$(nc -N 127.0.0.1 7001 < /dev/null)\" ''; end",
        ),
    ]));
}

#[test]
fn the_next_command_goes_by_the_same_connection() {
    drive_directly(&table(&[
        (
            "one connection for many commands, and one of its own where it is asked for",
            "of() { f -n \"$@\" $at 'echo $SSH_CONNECTION'; }
             first=$(of); is \"$(of)\" \"$first\"; [ \"$(of --no-master)\" != \"$first\" ]
             $FG master status | has '^ada@127.0.0.1 port 2222  not used for '
             $FG master status --json | has '\"kind\":\"direct\"\\|\"kind\": \"direct\"'
             # Another key is another login, and another account too.
             [ \"$($FG ssh --direct -n -i $T/user_rsa -o UserKnownHostsFile=$T/known_hosts -l ada $at 'echo $SSH_CONNECTION')\" != \"$first\" ]
             is \"$(g -n -l bea $at id -un)\" bea
             f -O check $at 2>&1 | has 'Master running'
             is \"$($FG master stop)\" 'the master has ended'; is \"$($FG master stop)\" 'no master runs'",
        ),
        (
            "fifty at once, their bytes and exit codes",
            "all=(); for n in {1..50}; do
                 (code=0; f $at \"cat; exit $n\" <<< $n > out$n || code=$?; is $code $n; is \"$(cat out$n)\" $n) & all+=($!)
             done; for p in \"${all[@]}\"; do wait $p; done",
        ),
        (
            "the host's key is looked at, and nothing is asked of a server that wants a person",
            "python - <<'END' &
import socket, threading
l = socket.create_server(('127.0.0.1', 7104))
def pump(a, b):
    try:
        while d := a.recv(65536): b.sendall(d)
    except OSError: pass
    try: b.shutdown(socket.SHUT_WR)
    except OSError: pass
while True:
    c, _ = l.accept()
    print('one', file=open('came', 'a'), flush=True)
    s = socket.create_connection(('127.0.0.1', 2222))
    for p in ((c, s), (s, c)): threading.Thread(target=pump, args=p, daemon=True).start()
END
             listens 7104; touch came
             came() { wc -l < came; }
             r() { $FG ssh --direct -n -o BatchMode=yes -i $1 -o UserKnownHostsFile=$2 -l ada 127.0.0.1:7104 true; }
             grep -o 'ssh-ed25519 .*' $T/known_hosts | head -n 1 | sed 's/^/[127.0.0.1]:7104 /' > k
             # Unknown: the master makes no connection, the command one.
             exits 255 r $T/user_ed25519 none 2> err; grep -q 'nobody here knows' err; is \"$(came)\" 1
             # A key that is not let in: the master tries it once, and leaves the server alone then.
             exits 255 r $T/user_ca k 2> err; grep -q 'does not let ada in' err; is \"$(came)\" 3
             exits 255 r $T/user_ca k 2> err; is \"$(came)\" 4; exits 255 r $T/user_ca k 2> err; is \"$(came)\" 5
             # Other files, and it tries again; another key is another connection.
             cp k k2; mv k2 k; exits 255 r $T/user_ca k 2> err; is \"$(came)\" 7
             r $T/user_ed25519 k; r $T/user_ed25519 k; is \"$(came)\" 8
             # Another host key under that name.
             sed 's/.*/[127.0.0.1]:7104 &/' $T/stranger.pub > bad
             exits 255 r $T/user_ed25519 bad 2> err; grep -q 'HAS CHANGED\\|nobody here' err",
        ),
        (
            "a key with a passphrase is the agent's, or asked for, and never the master's",
            "cp $T/user_ed25519 locked; ssh-keygen -q -p -N secret -f locked
             exits 255 $FG ssh --direct -n -o BatchMode=yes -i locked -o UserKnownHostsFile=$T/known_hosts -l ada $at true 2> err
             [ -s err ]; eval $(ssh-agent) > /dev/null; ssh-add -q $T/user_ed25519
             $FG ssh --direct -n -o BatchMode=yes -o UserKnownHostsFile=$T/known_hosts -l ada $at true
             if $FG master status > out; then is \"$(grep -c port out)\" 0; fi; ssh-agent -k > /dev/null",
        ),
        (
            "a server that accepts and says nothing",
            "mkfifo hold; nc -l 127.0.0.1 7102 < hold > /dev/null & exec 4> hold
             listens 7102; sed 's/.*/[127.0.0.1]:7102 &/' $T/stranger.pub > k
             exits 255 timeout 20 $FG ssh --direct -n -o ConnectTimeout=1 -i $T/user_ed25519 -o UserKnownHostsFile=k -l ada 127.0.0.1:7102 true 2> err
             grep -q 'in time' err",
        ),
    ]));
}
