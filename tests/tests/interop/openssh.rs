//! OpenSSH's own clients: sessions, terminals, copying, multiplexing, key exchange under load, ways to log in.

use fleetgate_tests::peer::{Row, drive};

/// A table of names and scripts.
fn table(rows: &[(&str, &str)]) -> Vec<Row> {
    rows.iter()
        .map(|(name, script)| Row::new(*name, *script))
        .collect()
}

#[test]
fn sessions_are_as_with_sshd() {
    let mut rows = table(&[
        ("true", "s gate true"),
        ("exit codes", "for n in 0 1 2 126 127 254 255; do exits $n s gate \"exit $n\"; done"),
        (
            "exit by a signal",
            "exits 255 s -v gate 'kill -KILL $$' 2> log
             grep -q 'rtype exit-signal' log || { cat log; fail 'no exit-signal'; }",
        ),
        (
            "an unknown command",
            "exits 127 s gate /no/such/program 2> err; grep -q /no/such/program err",
        ),
        (
            "stdout and stderr stay apart",
            "s gate 'echo out; echo err >&2; echo out2' > out 2> err
             is \"$(cat out)\" $'out\\nout2'; is \"$(cat err)\" err",
        ),
        (
            "10 MB on stdout and on stderr at once",
            "s gate 'head -c 10M /dev/zero & head -c 10M /dev/zero | tr \\\\0 x >&2; wait' > out 2> err
             is \"$(stat -c %s out err | xargs)\" '10485760 10485760'; is \"$(tr -d x < err | wc -c)\" 0",
        ),
        (
            "every byte, both ways",
            "printf \"$(printf '\\\\x%02x' {0..255})\" > in; s gate cat < in > out; cmp in out",
        ),
        (
            "output that is still under way when the program exits",
            "exits 3 s gate 'head -c 5M /dev/zero; exit 3' > out; is \"$(stat -c %s out)\" 5242880",
        ),
        (
            "output that ends long before the program",
            "exits 3 s gate 'exec >&- 2>&-; sleep 1; exit 3'",
        ),
        (
            "stdin is large",
            "noise 30M > in; is \"$(s gate sha256sum < in)\" \"$(sha256sum < in)\"",
        ),
        (
            "stdin half-closed: output after its end",
            "is \"$(printf abc | s gate 'cat; echo; echo after')\" $'abc\\nafter'",
        ),
        (
            "stdin that the program closes early",
            "(head -c 20M /dev/zero || :) | s gate 'head -c 10 | wc -c; exec <&-; echo on' > out
             is \"$(cat out)\" $'10\\non'",
        ),
        (
            "stdin that nobody reads",
            "(head -c 20M /dev/zero || :) | exits 4 s gate 'exit 4'",
        ),
        (
            "-n reads nothing",
            "is \"$(echo text | (s -n gate cat; cat))\" text",
        ),
        (
            "the client goes away, the program hears of it",
            "s gate 'echo $$; exec yes' | head -n 1 > pid || :
             s gate \"tail --pid=$(cat pid) -f /dev/null\"",
        ),
        (
            "environment",
            "is \"$(s gate 'echo $USER $LOGNAME $HOME $SHELL $PWD')\" \\
                'ada ada /run/home/ada /bin/bash /run/home/ada'
             s gate 'echo $SSH_CONNECTION' | grep -Eqx \"127.0.0.1 [0-9]+ $HERE\"
             s gate 'echo $SSH_CLIENT' | grep -Eqx \"127.0.0.1 [0-9]+ ${HERE#* }\"
             is \"$(s gate 'echo ${SSH_TTY-none} ${TERM-none}')\" 'none dumb' || \\
             is \"$(s gate 'echo ${SSH_TTY-none}')\" none
             is \"$(s gate 'id -un; id -G' | xargs)\" 'ada 54322 54323'",
        ),
        (
            "environment from the client: what is accepted, and what is not",
            "export LC_OURS=yes SECRET=no LANG=C
             is \"$(s -o SendEnv='LC_* SECRET' -o SetEnv='LANG=C.UTF-8 OTHER=no' gate \\
                 'echo $LC_OURS $LANG ${SECRET-unset} ${OTHER-unset}')\" 'yes C.UTF-8 unset unset'",
        ),
        (
            "a login shell without a terminal",
            "is \"$(echo 'shopt -q login_shell && echo login; tty; echo $0' | s -T gate)\" $'login\\nnot a tty\\n-bash'",
        ),
        (
            "a child in the background that holds stdout",
            "s gate 'mkfifo pipe; (read x < pipe; echo $x) & echo early' > out & ssh=$!
             until_so grep -q early out
             s gate 'echo late > pipe; rm pipe'
             wait $ssh; is \"$(cat out)\" $'early\\nlate'",
        ),
        (
            "a child in the background that has let go of everything",
            "s gate 'sleep 1000 < /dev/null > /dev/null 2>&1 & echo $!' > pid
             s gate \"kill $(cat pid)\"",
        ),
        (
            "a forced command",
            "ssh-keygen -q -t ed25519 -N '' -f k
             echo \"command=\\\"echo forced: \\$SSH_ORIGINAL_COMMAND\\\" $(cat k.pub)\" >> $HOMES/ada/.ssh/authorized_keys
             is \"$(by k gate some thing)\" 'forced: some thing'
             is \"$(by k -T gate < /dev/null)\" 'forced:'
             by k -s gate sftp < /dev/null | has '^forced: .*sftp'",
        ),
        (
            "another login",
            "is \"$(s bea@gate id -un)\" bea",
        ),
        (
            "root",
            "cat $T/user_ed25519.pub > $HOMES/root/.ssh/authorized_keys
             is \"$(s root@gate id -u)\" 0",
        ),
        (
            "a subsystem that does not exist",
            "exits 255 s -s gate nothing 2> err; grep -q 'subsystem request failed' err",
        ),
        (
            "compression asked for",
            "is \"$(s -C gate echo yes)\" yes",
        ),
        (
            "many sessions one after another",
            "for n in {1..10}; do is \"$(s gate echo $n)\" $n; done",
        ),
        (
            "twenty at once",
            "for n in {1..20}; do s gate \"echo $n\" > out$n & all+=($!); done
             for p in \"${all[@]}\"; do wait $p; done; is \"$(cat out* | sort -n | xargs)\" \"$(echo {1..20})\"",
        ),
        (
            "keepalives are answered",
            "s -v -o ServerAliveInterval=1 -o ServerAliveCountMax=2 gate \\
                 'read x || sleep 4; echo alive' < /dev/null > out 2> log
             is \"$(cat out)\" alive",
        ),
    ]);
    rows.push(Row::heavy(
        "key exchange again and again under load, both ways",
        "s -v -o RekeyLimit=1M -o KexAlgorithms=curve25519-sha256 gate cat 2> log \\
             < <(noise 100M) | cmp - <(noise 100M)
         n=$(grep -c 'SSH2_MSG_NEWKEYS received' log); [ $n -ge 50 ] || fail \"only $n key exchanges\"",
    ));
    drive(&rows);
}

#[test]
fn terminals_are_as_with_sshd() {
    drive(&table(&[
        (
            "a shell on a terminal",
            "python $PEERS/python/terminal.py shell -- ssh -F $CONF -tt gate",
        ),
        (
            "a command on a terminal",
            "s -tt gate 'test -t 0 && test -t 1 && test -t 2 && tty; echo $TERM $SSH_TTY' > out
             grep -Eq '^/dev/pts/[0-9]+' out; grep -Eq '^xterm /dev/pts/' out",
        ),
        (
            "the window and its changes",
            "python $PEERS/python/terminal.py window -- ssh -F $CONF -tt gate",
        ),
        (
            "terminal modes",
            "python $PEERS/python/terminal.py modes -- ssh -F $CONF -tt gate",
        ),
        (
            "interrupt from the keyboard",
            "python $PEERS/python/terminal.py interrupt -- ssh -F $CONF -tt gate",
        ),
        (
            "the terminal hangs up",
            "python $PEERS/python/terminal.py hangup -- ssh -F $CONF -tt gate
             appears $HOMES/ada/hup; rm $HOMES/ada/hup",
        ),
        (
            "no terminal by key option",
            "ssh-keygen -q -t ed25519 -N '' -f k
             echo \"no-pty $(cat k.pub)\" >> $HOMES/ada/.ssh/authorized_keys
             exits 255 by k -o LogLevel=INFO -tt gate true 2> err < /dev/null
             grep -q 'PTY allocation request failed' err; by k gate true",
        ),
        (
            "exit codes from a terminal",
            "exits 7 s -tt gate 'exit 7' < /dev/null; exits 9 s -tt gate <<< 'exit 9' > /dev/null",
        ),
        (
            "much output to a terminal",
            "s -tt gate 'stty -opost; seq 200000' < /dev/null > out; is \"$(cmp out <(seq 200000) && echo same)\" same",
        ),
    ]));
}

#[test]
fn files_are_copied() {
    // One way of copying, for scp's two protocols.
    let scp = |way: &str, spaced: &str| {
        format!(
            "noise 20M > big; mkdir -p tree/sub tree/empty; for n in {{1..30}}; do echo $n > tree/sub/$n; done
             chmod 751 tree/sub/1; touch -d @1000000001 tree/sub/1; echo x > 'with space'
             sc {way} big gate:; sc {way} gate:big back; cmp big back
             sc {way} -rp tree gate:; sc {way} -rp gate:tree tree2; diff -r tree tree2
             is \"$(stat -c '%a %Y' tree2/sub/1)\" '751 1000000001'
             sc {way} 'with space' gate:{spaced}; sc {way} gate:{spaced} again; cmp 'with space' again
             exits 1 sc {way} gate:missing . 2> err; grep -q 'No such file' err
             sc {way} -3 gate:big gate2:big2; sc {way} gate:big2 .; cmp big big2
             sc {way} 'gate:tree/sub/1*' .; test -e 19
             s gate 'rm -r big big2 tree with*'"
        )
    };
    drive(&[
        Row::new("scp -O", scp("-O", "'with\\ space'")),
        Row::new("scp -s", scp("-s", "'with space'")),
        Row::new(
            "sftp batch",
            "noise 5M > big
             sf -b - gate > out <<'END'
pwd
mkdir d
put big d/big
chmod 640 d/big
ln -s big d/link
rename d/big d/moved
symlink moved d/link2
ls -l d
df -h
-rm d/missing
get d/moved back
reget d/moved back
rm d/*
rmdir d
END
             cmp big back; grep -q '^Remote working directory: /run/home/ada' out
             grep -Eq '^-rw-r----- .* 5242880 .* (d/)?moved' out",
        ),
        Row::new(
            "ssh-copy-id",
            "ssh-keygen -q -t ed25519 -N '' -f new
             exits 255 by new gate true 2> /dev/null
             ssh-copy-id -f -i new.pub gate > log 2>&1 || { cat log; fail ssh-copy-id; }
             by new gate true",
        ),
        Row::new(
            "ssh-keyscan",
            "ssh-keyscan -p 2222 127.0.0.1 2> err | cut -d' ' -f2,3 | sort > got
             cut -d' ' -f2,3 $T/known_hosts | sort > wanted; diff wanted got
             grep -q '^# 127.0.0.1:2222 SSH-2.0-' err
             # A joined node shows the cluster's certificates, not those of files.
             case $SUBJECT in Sshd | Node) ;; *) exit ;; esac
             ssh-keyscan -c -p 2222 127.0.0.1 2> /dev/null | awk '{ print $NF }' | sort > got
             awk '{ print $2 }' $T/host_*-cert.pub | sort > wanted; diff wanted got",
        ),
    ]);
}

#[test]
fn sessions_share_a_connection() {
    // Each row has a master that lasts until it is told to exit.
    let master =
        "m=(-F $CONF -S $PWD/ctl); ssh \"${m[@]}\" -o ControlMaster=yes -o ControlPersist=yes gate true
        s() { ssh \"${m[@]}\" \"$@\"; }\n";
    let end = "\ns -O exit gate 2> /dev/null";
    let rows: [(&str, &str); 8] = [
        (
            "ControlMaster, ControlPersist",
            "s -O check gate 2> err; grep -q 'Master running' err
             a=$(s gate 'echo $SSH_CONNECTION'); b=$(s gate 'echo $SSH_CONNECTION'); is \"$a\" \"$b\"
             for n in 0 3 255; do exits $n s gate \"exit $n\"; done",
        ),
        (
            "ten sessions at once over one connection",
            "for n in {1..10}; do s gate \"read x; echo $n\" < <(echo; cat /dev/null) > out$n & all+=($!); done
             for p in \"${all[@]}\"; do wait $p; done; is \"$(cat out* | sort -n | xargs)\" \"$(echo {1..10})\"",
        ),
        (
            "a session that stands still holds up no other",
            "mkfifo still; s gate 'head -c 30M /dev/zero' > still & p=$!
             exec 3< still
             noise 20M > in; is \"$(s gate sha256sum < in)\" \"$(sha256sum < in)\"
             is \"$(wc -c <&3)\" 31457280; wait $p",
        ),
        (
            "terminals and commands side by side",
            "s -tt gate 'echo up; read x; echo got $x' < <(until_so test -e go; echo line; until_so test -e ever) > tty & p=$!
             until_so grep -q up tty; is \"$(s gate echo beside)\" beside; touch go
             wait $p; touch ever; grep -q 'got line' tty",
        ),
        (
            "sftp and scp over it",
            "noise 3M > f; scp -q -o ControlPath=$PWD/ctl -F $CONF f gate:f; sftp -q -o ControlPath=$PWD/ctl -F $CONF gate:f g 
             cmp f g; s gate rm f",
        ),
        (
            "forwards added and cancelled",
            "s -O forward -L $PWD/fwd:127.0.0.1:2222 gate
             nc -NU $PWD/fwd < /dev/null | grep -aq '^SSH-2.0-'
             s -O cancel -L $PWD/fwd:127.0.0.1:2222 gate; exits 1 nc -NU $PWD/fwd < /dev/null 2> /dev/null
             s -O forward -R 7001:127.0.0.1:2222 gate
             s gate 'nc -N 127.0.0.1 7001 < /dev/null' | grep -aq '^SSH-2.0-'
             s -O cancel -R 7001:127.0.0.1:2222 gate
             exits 1 s gate 'nc -N 127.0.0.1 7001 < /dev/null'",
        ),
        (
            "a changed login shell counts at the next session",
            "is \"$(s gate 'echo ${BASH_VERSION:+bash}')\" bash
             sed -i '/^ada:/s,/bin/bash$,/bin/sh,' /etc/passwd
             # OpenSSH's server keeps what it read at login.
             if [ $SUBJECT = Sshd ]; then now=bash; else now=; fi
             is \"$(s gate 'echo ${BASH_VERSION:+bash}')\" \"$now\"
             sed -i '/^ada:/s,/bin/sh$,/bin/bash,' /etc/passwd",
        ),
        (
            "sixty sessions, ten at a time",
            "for round in {1..6}; do all=(); for n in {1..10}; do s gate true & all+=($!); done
             for p in \"${all[@]}\"; do wait $p; done; done",
        ),
    ];
    let rows: Vec<Row> = rows
        .iter()
        .map(|(name, script)| Row::new(*name, format!("{master}{script}{end}")))
        .collect();
    drive(&rows);
}

#[test]
fn every_way_to_log_in_works() {
    let mut rows = Vec::new();
    for key in ["ed25519", "ecdsa256", "ecdsa384", "rsa"] {
        for (what, file) in [("key", "user"), ("certificate", "cert")] {
            let script = format!("is \"$(by $T/{file}_{key} gate id -un)\" ada");
            rows.push(Row::new(format!("{what} {key}"), script));
        }
    }
    for algorithm in ["rsa-sha2-256", "rsa-sha2-512"] {
        rows.push(Row::new(
            format!("key rsa by {algorithm}"),
            format!("by $T/user_rsa -o PubkeyAcceptedAlgorithms={algorithm} gate true"),
        ));
    }
    rows.extend(table(&[
        (
            "security key ed25519, held by an agent",
            "python $PEERS/python/sk_agent.py sk-ssh-ed25519@openssh.com agent sk.pub & appears sk.pub
             cat sk.pub >> $HOMES/ada/.ssh/authorized_keys
             SSH_AUTH_SOCK=$PWD/agent by sk.pub gate true",
        ),
        (
            "security key ecdsa, held by an agent",
            "python $PEERS/python/sk_agent.py sk-ecdsa-sha2-nistp256@openssh.com agent sk.pub & appears sk.pub
             cat sk.pub >> $HOMES/ada/.ssh/authorized_keys
             SSH_AUTH_SOCK=$PWD/agent by sk.pub gate true",
        ),
        (
            "a key that is not known, a certificate of another authority, another's principal",
            "s gate true
             exits 255 by $T/stranger gate true
             exits 255 by $T/cert_ed25519 bea@gate true",
        ),
        (
            "certificates: expired, not yet valid, of another address, with a forced command",
            "try() { rm -f k k.pub k-cert.pub; ssh-keygen -q -t ed25519 -N '' -f k
                 ssh-keygen -q -s $T/user_ca -I try -n ada \"$@\" k.pub; }
             l() { by k gate \"$@\"; }
             try -V -1h:+1h; l true
             try -V 20200101:20200102; exits 255 l true
             try -V 20400101:20410102; exits 255 l true
             try -O source-address=127.0.0.0/8; l true
             try -O source-address=192.0.2.0/24; exits 255 l true
             try -O force-command='echo forced'; is \"$(l true)\" forced
             try -O clear; l true; exits 255 l -tt true < /dev/null
             try -O critical:unknown@example.test=x; exits 255 l true",
        ),
        (
            "options of authorized_keys",
            "K=$HOMES/ada/.ssh/authorized_keys; cp $K kept; ssh-keygen -q -t ed25519 -N '' -f k
             l() { by k gate \"$@\"; }
             line() { cp kept $K; echo \"$1 $(cat k.pub)\" >> $K; }
             line ''; l true
             line 'from=\"127.0.0.0/8\"'; l true
             line 'from=\"!127.0.0.1,127.0.0.0/8\"'; exits 255 l true
             line 'from=\"192.0.2.1\"'; exits 255 l true
             line 'expiry-time=\"20400101\"'; l true
             line 'expiry-time=\"20200101\"'; exits 255 l true
             line 'restrict'; l true
             line 'restrict,pty'; l -tt tty < /dev/null | has /dev/pts
             line \"cert-authority,principals=\\\"x\\\"\"; exits 255 l true
             cp kept $K; echo \"cert-authority $(cat $T/host_ca.pub)\" >> $K
             by $T/stranger gate true; cp kept $K",
        ),
        (
            "a password, and a wrong one",
            "export SSH_ASKPASS=$T/askpass SSH_ASKPASS_REQUIRE=force
             l() { ssh -F $T/bare -o BatchMode=no -o NumberOfPasswordPrompts=1 \\
                 -o PreferredAuthentications=$1 gate \"${@:2}\"; }
             is \"$(l keyboard-interactive id -un)\" ada
             is \"$(l password id -un)\" ada
             ANSWER=wrong exits 255 l keyboard-interactive true
             ANSWER=wrong exits 255 l password true",
        ),
        (
            "nobody is nobody",
            "exits 255 s nobody-here@gate true 2> one; exits 255 by $T/stranger gate true 2> two
             is \"$(sed 's/.*: //' one)\" \"$(sed 's/.*: //' two)\"",
        ),
        (
            "many wrong keys before the right one",
            "eval $(ssh-agent) > /dev/null; for n in 1 2 3 4; do ssh-keygen -q -t ed25519 -N '' -f k$n; ssh-add -q k$n; done
             s -o IdentitiesOnly=no gate true; ssh-agent -k > /dev/null",
        ),
        (
            "other host keys are learnt (hostkeys-00, hostkeys-prove)",
            "sed -n 's/^.*ssh-ed25519 /[127.0.0.1]:2222 ssh-ed25519 /p' $T/known_hosts > known
             until_so eval 'test $(wc -l < known) = 3' | \
                 s -o UpdateHostKeys=yes -o UserKnownHostsFile=$PWD/known gate cat
             is \"$(cut -d' ' -f2 known | sort | xargs)\" 'ecdsa-sha2-nistp256 ssh-ed25519 ssh-rsa'
             cut -d' ' -f3 known | sort | diff - <(cut -d' ' -f3 $T/known_hosts | sort)",
        ),
        (
            "a host key that is not the known one",
            "sed \"s, AAAA.*, $(cut -d' ' -f2 $T/stranger.pub),\" <<< \"$(grep ed25519 $T/known_hosts)\" > known
             exits 255 s -o UserKnownHostsFile=$PWD/known -o HostKeyAlgorithms=ssh-ed25519 gate true 2> /dev/null",
        ),
    ]));
    drive(&rows);
}
