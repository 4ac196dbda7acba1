//! A machine without fleetgate: Debian's sshd, registered as docs/cluster.md says, and reached through the proxy by every
//! way that there is. What people do with ssh they do there too. What is refused there, and what is told of it, is in
//! `plain_sshd_refusals.rs`.

use fleetgate_tests::needs_root;
use fleetgate_tests::peer::{Row, drive_beside};
use fleetgate_tests::plain::{BY_MASTER, Machine, WAYS, WORDS, Way, typed};

/// Every row by every way.
fn rows(begin: &str, rows: &[(&str, &str)]) -> Vec<Row> {
    let made = WAYS.iter().chain([&BY_MASTER]).flat_map(|way| {
        rows.iter().map(move |(name, script)| {
            let Way { name: by, words } = way;
            let home = "export FLEETGATE_HOME=$T/home; H=$FLEETGATE_HOME; F=$FLEETGATE";
            Row::new(
                format!("{by}: {name}"),
                format!("{home}\n{words}{WORDS}{begin}\n{script}"),
            )
        })
    });
    made.collect()
}

fn drive(begin: &str, table: &[(&str, &str)]) {
    needs_root!("a network and accounts of its own");
    let machine = Machine::registered();
    drive_beside(&rows(begin, table), "sshd behind the proxy", || machine.log());
}

#[test]
fn sessions_are_as_with_ssh() {
    drive(
        "",
        &[
            ("a command", "is \"$(w ada@db1 'id -un; hostname')\" $'ada\\n'\"$(hostname)\""),
            (
                "the account is the one that is asked for",
                "is \"$(w -l bea db1 id -un)\" bea; is \"$(w root@db1 id -u)\" 0",
            ),
            ("exit codes", "for n in 0 1 2 126 127 254 255; do exits $n w ada@db1 \"exit $n\"; done"),
            ("an end by a signal", "exits 255 w ada@db1 'kill -KILL $$' 2> /dev/null"),
            (
                "stdout and stderr stay apart",
                "w ada@db1 'echo out; echo err >&2; echo out2' > out 2> err
                 is \"$(cat out)\" $'out\\nout2'; is \"$(cat err)\" err",
            ),
            (
                "every byte, both ways",
                "printf \"$(printf '\\\\x%02x' {0..255})\" > in; w ada@db1 cat < in > out; cmp in out",
            ),
            (
                "10 MB both ways, by checksum and at once",
                "noise 10M > in; sum=$(sha256sum < in); is \"$(w ada@db1 sha256sum < in)\" \"$sum\"
                 cp in $HOMES/ada/in; chmod 644 $HOMES/ada/in; is \"$(w -n ada@db1 'cat in' | sha256sum)\" \"$sum\"
                 is \"$(w ada@db1 cat < in | sha256sum)\" \"$sum\"; rm $HOMES/ada/in",
            ),
            (
                "10 MB on stdout and on stderr at once",
                "w -n ada@db1 'head -c 10M /dev/zero & head -c 10M /dev/zero | tr \\\\0 x >&2; wait' > out 2> err
                 is \"$(stat -c %s out err | xargs)\" '10485760 10485760'; is \"$(tr -d x < err | wc -c)\" 0",
            ),
            (
                "output that is still under way when the program exits",
                "exits 3 w ada@db1 'head -c 10M /dev/zero; exit 3' > out; is \"$(stat -c %s out)\" 10485760",
            ),
            (
                "stdin half-closed: output after its end",
                "is \"$(printf abc | w ada@db1 'cat; echo; echo after')\" $'abc\\nafter'",
            ),
            ("stdin that nobody reads", "(head -c 10M /dev/zero || :) | exits 4 w ada@db1 'exit 4'"),
            ("a login shell", "is \"$(echo 'shopt -q login_shell && echo login' | w -T ada@db1)\" login"),
            (
                "environment",
                "is \"$(LC_X=1 w -n -o 'SendEnv=LC_*' -o SetEnv=LANG=C ada@db1 'echo $LC_X $LANG')\" '1 C'",
            ),
            (
                "a terminal: raw here, told its size, ended by the program or by an escape",
                "a_terminal $HOMES/ada \"${W[@]}\" -t ada@db1",
            ),
            (
                "no terminal",
                "w -tt ada@db1 tty < /dev/null | has /dev/pts/
                 is \"$(w -T ada@db1 'tty || :' < /dev/null)\" 'not a tty'",
            ),
            (
                "the client goes away, the program hears of it",
                "w -n ada@db1 'echo $$; exec yes' | head -n 1 > pid || :
                 w -n ada@db1 \"tail --pid=$(cat pid) -f /dev/null\"",
            ),
            (
                "sftp, both ways",
                "noise 3M > f1; printf 'put f1 f2\\nget f2 f3\\nrename f2 f4\\nls -l f4\\nrm f4\\n' > batch
                 \"${C[@]}\" -b batch ada@db1 > out; cmp f1 f3; grep -q 3145728 out; [ ! -e $HOMES/ada/f4 ]",
            ),
            (
                "scp, both ways",
                "noise 3M > f1; \"${P[@]}\" f1 ada@db1:f2; \"${P[@]}\" ada@db1:f2 f3; cmp f1 f3; rm $HOMES/ada/f2",
            ),
            (
                "twenty at once",
                "all=(); for n in {1..20}; do w -n ada@db1 \"echo $n; exit $n\" > out$n & all+=($!); done
                 n=0; for p in \"${all[@]}\"; do n=$((n+1)); code=0; wait $p || code=$?; is $code $n; is \"$(cat out$n)\" $n; done",
            ),
        ],
    );
}

/// What only OpenSSH's client does.
#[test]
fn one_connection_for_many_sessions_and_new_keys_under_way() {
    drive(
        "[ \"${W[0]}\" = ssh ] || exit 0\n",
        &[
            (
                "twenty sessions at once over one connection",
                "m=(-o ControlPath=$PWD/m); w \"${m[@]}\" -o ControlMaster=yes -N ada@db1 & master=$!; appears $PWD/m
                 all=(); for n in {1..20}; do w \"${m[@]}\" -n ada@db1 \"head -c 100K /dev/zero; exit $n\" > out$n & all+=($!); done
                 n=0; for p in \"${all[@]}\"; do n=$((n+1)); code=0; wait $p || code=$?; is $code $n; is \"$(stat -c %s out$n)\" 102400; done
                 w \"${m[@]}\" -O exit ada@db1 2> /dev/null; wait $master || :",
            ),
            (
                "keys are replaced ten times while 10 MB go both ways",
                "noise 10M > in; w -v -o RekeyLimit=1M ada@db1 cat < in 2> err | cmp - in
                 [ \"$(grep -c 'rekeying in progress\\|need rekeying\\|NEWKEYS sent' err)\" -ge 10 ]",
            ),
        ],
    );
}

#[test]
fn forwarding_and_the_agent() {
    drive(
        "python $PEERS/python/echo.py 7100 $PWD/echo.sock & listens 7100; listens $PWD/echo.sock; chmod 777 echo.sock . ..
         bg() { w -N -o ExitOnForwardFailure=yes \"$@\" ada@db1 & bg=$!; }
         end() { kill $bg; wait $bg || :; }
         says() { is \"$(echo hello | nc -N \"$@\")\" hello; }",
        &[
            ("-L", "bg -L 7001:127.0.0.1:7100; listens 7001; says 127.0.0.1 7001; end"),
            (
                "-L to and from unix sockets",
                "bg -L 7001:$PWD/echo.sock -L $PWD/in.sock:127.0.0.1:7100; listens 7001; listens $PWD/in.sock
                 says 127.0.0.1 7001; says -U in.sock; end",
            ),
            ("-R", "bg -R 7002:127.0.0.1:7100; listens 7002; says 127.0.0.1 7002; end"),
            (
                "-R on a port that the sshd chooses",
                "mkfifo hold; exec 4<> hold; w -R 0:127.0.0.1:7100 ada@db1 'read x' < hold 2> log & bg=$!
                 until_so grep -q Allocated log; port=$(sed -n 's/^Allocated port \\([0-9]*\\) for.*/\\1/p' log)
                 says 127.0.0.1 $port; echo >&4; wait $bg",
            ),
            (
                "-R from a unix socket",
                "bg -R $HOMES/ada/r.sock:$PWD/echo.sock; listens $HOMES/ada/r.sock; says -U $HOMES/ada/r.sock; end
                 rm -f $HOMES/ada/r.sock",
            ),
            (
                "-R where it is in use already",
                "exits 255 w -N -o ExitOnForwardFailure=yes -R 127.0.0.1:7100:127.0.0.1:1 ada@db1 2> /dev/null",
            ),
            (
                "-D",
                "bg -D 7001; listens 7001; for v in 4 5; do says -X $v -x 127.0.0.1:7001 127.0.0.1 7100; done; end",
            ),
            (
                "-W",
                "is \"$(echo hello | w -W 127.0.0.1:7100 ada@db1)\" hello
                 exits 255 w -W 127.0.0.1:7999 ada@db1 < /dev/null 2> err; [ -s err ]",
            ),
            (
                "10 MB both ways through -L and -R",
                "noise 10M > in; bg -L 7001:127.0.0.1:7100 -R 7002:127.0.0.1:7100; listens 7001; listens 7002
                 for port in 7001 7002; do python $PEERS/python/echo.py to 127.0.0.1 $port < in | cmp - in; done; end",
            ),
            (
                "a connection that stands still holds up no other",
                "bg -L 7001:127.0.0.1:7100; listens 7001; mkfifo still
                 python $PEERS/python/echo.py to 127.0.0.1 7001 < /dev/zero > still & exec 3< still
                 head -c 1M <&3 > /dev/null; noise 2M > in
                 python $PEERS/python/echo.py to 127.0.0.1 7001 < in | cmp - in; end",
            ),
            (
                "-A: the keys of the agent, and what they sign",
                "eval $(ssh-agent) > /dev/null; ssh-add -q $T/user_rsa; keys=$(ssh-add -l)
                 is \"$(w -n -A ada@db1 ssh-add -l)\" \"$keys\"; is \"$(w -n -a ada@db1 'echo ${SSH_AUTH_SOCK-none}')\" none
                 cp $T/user_rsa.pub $HOMES/ada/k.pub; chmod 644 $HOMES/ada/k.pub
                 w -n -A ada@db1 'echo text | ssh-keygen -q -Y sign -f k.pub -n file' > text.sig
                 echo text | ssh-keygen -q -Y check-novalidate -n file -s text.sig > /dev/null
                 rm $HOMES/ada/k.pub; ssh-agent -k > /dev/null",
            ),
            (
                // OpenSSH's own client waits for the agent itself, before anything goes to it.
                "an agent that stalls holds up no session",
                "[ \"${W[0]}\" != ssh ] || exit 0; eval $(ssh-agent) > /dev/null; ssh-add -q $T/user_rsa; mkfifo hold; exec 4<> hold
                 w -A ada@db1 'echo up; read x; ssh-add -l > /dev/null & p=$!; head -c 2M /dev/zero; kill $p' < hold > out & c=$!
                 until_so test -s out; kill -STOP $SSH_AGENT_PID; echo >&4; until_so eval '[ $(stat -c %s out) = 2097155 ]'
                 kill -CONT $SSH_AGENT_PID; wait $c || :; ssh-agent -k > /dev/null",
            ),
        ],
    );
}

#[test]
fn the_page_says_what_is_typed() {
    let typed = typed();
    for begin in [
        "fleetgate ca show",
        "TrustedUserCAKeys",
        "fleetgate node register",
    ] {
        assert_eq!(
            typed.iter().filter(|l| l.starts_with(begin)).count(),
            1,
            "{typed:#?}"
        );
    }
    assert_eq!(typed.len(), 3, "a line that no test types: {typed:#?}");
}
