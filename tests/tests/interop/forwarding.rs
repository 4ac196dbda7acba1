//! OpenSSH's client as a way through: ports, unix sockets, SOCKS, jumps, agents and X11, both directions.

use fleetgate_tests::peer::{Row, drive};

/// What every row begins with: a service behind the server and one before it, which answer with what they were
/// sent after its end, and a client in the background that is gone at the end.
const BEGIN: &str = include_str!("../../scripts/forwarding.sh");

#[test]
fn ports_and_sockets_are_forwarded() {
    let rows = [
        ("-L", "bg -L 7001:127.0.0.1:7100; says 127.0.0.1 7001; end"),
        (
            "-L by name and by IPv6",
            "bg -L 7001:localhost:7100 -L 7002:gate.test:7100; says 127.0.0.1 7001; says 127.0.0.1 7002; end",
        ),
        ("-L to a unix socket", "bg -L 7001:$PWD/echo.sock; says 127.0.0.1 7001; end"),
        (
            "-L from a unix socket to a unix socket",
            "bg -L $PWD/in.sock:$PWD/echo.sock; says -U in.sock; end",
        ),
        ("-R", "bg -R 7001:127.0.0.1:7100; says 127.0.0.1 7001; end"),
        (
            "-R on a port that the server chooses",
            "bg -o LogLevel=INFO -R 0:127.0.0.1:7100 2> log
             port=$(sed -n 's/^Allocated port \\([0-9]*\\) for.*/\\1/p' log | head -n 1)
             [ \"$port\" -gt 1023 ]; says 127.0.0.1 $port; end",
        ),
        (
            "-R from a unix socket",
            "bg -R /run/home/ada/r.sock:127.0.0.1:7100; listens /run/home/ada/r.sock
             is \"$(stat -c '%U' /run/home/ada/r.sock)\" ada; says -U /run/home/ada/r.sock; end
             rm -f /run/home/ada/r.sock",
        ),
        (
            "-R from a unix socket to a unix socket",
            "bg -R /run/home/ada/r.sock:$PWD/echo.sock; says -U /run/home/ada/r.sock; end; rm -f /run/home/ada/r.sock",
        ),
        (
            "-R where it is in use already, or not the user's to take",
            "exits 255 bg -R 127.0.0.1:7100:127.0.0.1:7100 2> err; grep -q 'remote port forwarding failed' err
             exits 255 bg -R 80:127.0.0.1:7100 2> err; grep -q 'remote port forwarding failed' err
             exits 255 bg -R /run/no.sock:127.0.0.1:7100 2> err; grep -q 'remote port forwarding failed' err",
        ),
        (
            "-R on the wildcard address",
            "ip addr add 192.0.2.7/32 dev lo; bg -R 7001:127.0.0.1:7100; exits 1 nc -N 192.0.2.7 7001 < /dev/null; end
             bg -R '*:7001:127.0.0.1:7100'; says 192.0.2.7 7001; end; ip addr del 192.0.2.7/32 dev lo",
        ),
        (
            "-D",
            "bg -D 7001; for v in 4 5; do says -X $v -x 127.0.0.1:7001 127.0.0.1 7100; done
             is \"$(echo hello | python $PEERS/python/socks.py 7001 gate.test 7100)\" hello; end",
        ),
        (
            "-R as SOCKS",
            "bg -R 7001; says -X 5 -x 127.0.0.1:7001 127.0.0.1 7100; end",
        ),
        ("-W", "is \"$(echo hello | s -W 127.0.0.1:7100 gate)\" hello"),
        (
            "-J",
            "is \"$(s -J gate,gate2 gate.test 'echo $SSH_CONNECTION' | cut -d' ' -f3,4)\" \"$HERE\"",
        ),
        (
            "-t through -J",
            "s -J gate -tt gate2 tty < /dev/null | has /dev/pts/",
        ),
        (
            "refused: nobody listens, no such name, no such socket",
            "exits 255 s -W 127.0.0.1:7999 gate < /dev/null 2> err; grep -qi 'refused\\|failed' err
             exits 255 s -W no-such-name.test:1 gate < /dev/null 2> err; grep -qi 'failed' err
             bg -L 7001:127.0.0.1:7999 -L 7002:$PWD/none.sock
             for port in 7001 7002; do is \"$(nc -N 127.0.0.1 $port < /dev/null)\" ''; done; end",
        ),
        (
            "20 MB both ways through -L and through -R",
            "noise 20M > in; bg -L 7001:127.0.0.1:7100 -R 7002:127.0.0.1:7100
             for port in 7001 7002; do python $PEERS/python/echo.py to 127.0.0.1 $port < in | cmp - in; done; end",
        ),
        (
            "thirty connections at once",
            "noise 200K > in; bg -L 7001:127.0.0.1:7100
             for n in {1..30}; do python $PEERS/python/echo.py to 127.0.0.1 7001 < in | cmp - in & all+=($!); done
             for p in \"${all[@]}\"; do wait $p; done; end",
        ),
        (
            "a connection that stands still holds up no other",
            "bg -L 7001:127.0.0.1:7100; mkfifo still
             python $PEERS/python/echo.py to 127.0.0.1 7001 < /dev/zero > still & exec 3< still
             head -c 1M <&3 > /dev/null; noise 5M > in
             python $PEERS/python/echo.py to 127.0.0.1 7001 < in | cmp - in; end",
        ),
        (
            "-N does nothing, -T -n -f go to the background",
            "s -T -n -f gate 'touch began; echo $$ > pid; exec sleep 1000'; appears /run/home/ada/pid
             s gate 'kill $(cat pid); rm began pid'
             s -N -S $PWD/ctl -M gate & listens $PWD/ctl; s -S $PWD/ctl -O exit gate 2> /dev/null; wait $!",
        ),
        (
            "forwarding and commands over one connection",
            "bg -L 7001:127.0.0.1:7100; is \"$(s -S $PWD/ctl gate echo beside)\" beside; says 127.0.0.1 7001; end",
        ),
        (
            "keys that permit no forwarding, or one target",
            "K=/run/home/ada/.ssh/authorized_keys; cp $K kept; ssh-keygen -q -t ed25519 -N '' -f k
             line() { cp kept $K; echo \"$1 $(cat k.pub)\" >> $K; }
             w() { echo hello | by k -W 127.0.0.1:$1 gate; }
             line ''; is \"$(w 7100)\" hello
             line 'restrict'; exits 255 w 7100 2> /dev/null
             line 'restrict,port-forwarding'; is \"$(w 7100)\" hello
             line 'no-port-forwarding'; exits 255 w 7100 2> /dev/null
             exits 255 by k -o ExitOnForwardFailure=yes -N -R 7001:127.0.0.1:7100 gate 2> /dev/null
             line 'permitopen=\"127.0.0.1:7100\"'; is \"$(w 7100)\" hello; exits 255 w 2222 2> /dev/null
             line 'permitlisten=\"127.0.0.1:7003\"'
             exits 255 by k -o ExitOnForwardFailure=yes -N -R 127.0.0.1:7001:127.0.0.1:7100 gate 2> /dev/null
             by k -o ExitOnForwardFailure=yes -f -R 127.0.0.1:7003:127.0.0.1:7100 gate \\
                 'nc -N 127.0.0.1 7003 <<< through' > out; until_so grep -q through out; cp kept $K",
        ),
    ];
    let rows: Vec<Row> = rows
        .iter()
        .map(|(name, script)| Row::new(*name, format!("{BEGIN}{script}")))
        .collect();
    drive(&rows);
}

#[test]
fn agents_and_displays_are_forwarded() {
    let rows = [
        (
            "-A",
            "eval $(ssh-agent) > /dev/null; ssh-add -q $T/user_rsa; keys=$(ssh-add -l)
             is \"$(s -A gate ssh-add -l)\" \"$keys\"
             is \"$(s -A gate 'stat -c %a $(dirname $SSH_AUTH_SOCK)')\" 700
             is \"$(s -a gate 'echo ${SSH_AUTH_SOCK-none}')\" none
             ssh-agent -k > /dev/null",
        ),
        (
            "-A: onward with the agent's key",
            "eval $(ssh-agent) > /dev/null; ssh-add -q $T/user_ed25519
             cp $T/bare $T/known_hosts /run/home/ada; chmod 644 /run/home/ada/bare; sed -i /Identit/d /run/home/ada/bare
             is \"$(s -A gate ssh -A -F bare gate ssh-add -l)\" \"$(ssh-add -l)\"
             rm /run/home/ada/bare; ssh-agent -k > /dev/null",
        ),
        (
            "-A: its socket is gone afterwards",
            "eval $(ssh-agent) > /dev/null; path=$(s -A gate 'echo $SSH_AUTH_SOCK'); [ -n \"$path\" ]
             until_so test ! -e \"$path\"; ssh-agent -k > /dev/null",
        ),
        (
            "-X",
            "cookie=0123456789abcdef0123456789abcdef; export DISPLAY=127.0.0.1:7 XAUTHORITY=$PWD/authority
             xauth -q add $DISPLAY . $cookie 2> /dev/null
             python $PEERS/python/display.py server 6007 $cookie & server=$!; listens 6007
             scp -q -F $CONF $PEERS/python/display.py gate:
             s -X -o ForwardX11Trusted=yes gate '/usr/bin/python3 display.py client; echo $DISPLAY; rm display.py' > out
             grep -q '^the display answered' out; grep -Eq '^(localhost|127.0.0.1):[0-9]+\\.0$' out; wait $server",
        ),
        (
            "-x",
            "is \"$(DISPLAY=:7 s -x gate 'echo ${DISPLAY-none}')\" none",
        ),
    ];
    let rows: Vec<Row> = rows
        .iter()
        .map(|(name, script)| Row::new(*name, *script))
        .collect();
    drive(&rows);
}
