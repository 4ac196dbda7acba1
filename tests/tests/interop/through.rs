//! `fleetgate ssh` as people use it, by itself and under the tools that are told to run it instead of ssh; and plain
//! ssh by `-J` and by the configuration that fleetgate writes. The rest of the matrix (`interop`) goes through the
//! proxy too, by a bridge for clients that know no proxies.

use fleetgate_tests::peer::{Row, Subject, drive_by};

/// What every row begins with.
const BEGIN: &str = include_str!("../../scripts/through.sh");

fn drive(rows: &[(&str, &str)]) {
    let rows: Vec<Row> = rows
        .iter()
        .map(|(name, script)| Row::heavy(*name, format!("{BEGIN}{script}")))
        .collect();
    drive_by(&rows, Subject::ProxyCommand);
}

#[test]
fn sessions_go_through_the_proxy() {
    drive(&[
        ("true", "f ada@gate true"),
        ("-l, and the account behind it", "is \"$(f -l bea gate id -un)\" bea; is \"$(f root@gate id -u)\" 0"),
        ("exit codes", "for n in 0 1 2 126 127 254 255; do exits $n f ada@gate \"exit $n\"; done"),
        ("exit by a signal", "exits 255 f ada@gate 'kill -KILL $$' 2> /dev/null"),
        (
            "stdout and stderr stay apart",
            "f ada@gate 'echo out; echo err >&2; echo out2' > out 2> err
             is \"$(cat out)\" $'out\\nout2'; is \"$(cat err)\" err",
        ),
        (
            "every byte, both ways",
            "printf \"$(printf '\\\\x%02x' {0..255})\" > in; f ada@gate cat < in > out; cmp in out",
        ),
        (
            "stdin is large",
            "noise 30M > in; is \"$(f ada@gate sha256sum < in)\" \"$(sha256sum < in)\"",
        ),
        (
            "output is large, and still under way when the program exits",
            "exits 3 f ada@gate 'head -c 30M /dev/zero; exit 3' > out; is \"$(stat -c %s out)\" 31457280",
        ),
        (
            "stdin half-closed: output after its end",
            "is \"$(printf abc | f ada@gate 'cat; echo; echo after')\" $'abc\\nafter'",
        ),
        (
            "stdin that nobody reads",
            "(head -c 20M /dev/zero || :) | exits 4 f ada@gate 'exit 4'",
        ),
        ("-n reads nothing", "is \"$(echo text | (f -n ada@gate cat; cat))\" text"),
        (
            "-f goes to the background when all stands, and says what failed before",
            "f -f ada@gate 'echo up > behind'; until_so test -s $HOMES/ada/behind; rm $HOMES/ada/behind
             exits 255 f -f stranger@gate true 2> err; test -s err; exits 2 f -f ada@gate 2> err; grep -q background err",
        ),
        (
            "-O: the connection to the proxy that is kept",
            "f ada@gate true; f -O check 2> err; grep -q 'Master running (pid=' err
             f -O exit 2> err; grep -q 'Exit request sent' err; exits 255 f -O check 2> err; f ada@gate true
             f -O stop gate 2> err; grep -q 'Stop listening request sent' err; f ada@gate true",
        ),
        (
            "-Y: the display sees its own cookie, and the far side never does",
            "cookie=0123456789abcdef0123456789abcdef; export DISPLAY=127.0.0.1:7 XAUTHORITY=$PWD/authority
             xauth -q add $DISPLAY . $cookie 2> /dev/null
             python $PEERS/python/display.py server 6007 $cookie & server=$!; listens 6007
             \"$FLEETGATE\" scp -q $PEERS/python/display.py ada@gate:
             f -Y ada@gate '/usr/bin/python3 display.py client; xauth list; rm display.py' > out
             grep -q '^the display answered' out; exits 1 grep $cookie out; wait $server
             is \"$(f -x ada@gate 'echo ${DISPLAY-none}')\" none",
        ),
        (
            "-vv speaks in words, and options that ssh knows are no errors",
            "f -vv -o Compression=yes -o Ciphers=aes256-gcm@openssh.com ada@gate true 2> err
             grep -q 'agreed on: key exchange .*to the server aes256-gcm@openssh.com' err; grep -q 'Compression=yes has no effect' err
             exits 1 grep -E 'Some\\(|Chosen|Asked' err",
        ),
        (
            "a terminal",
            "f -tt ada@gate tty < /dev/null | has /dev/pts/; is \"$(f -T ada@gate 'tty || :' < /dev/null)\" 'not a tty'
             script -qec \"$FLEETGATE ssh -t ada@gate 'stty size; tty'\" /dev/null < /dev/null | has /dev/pts/",
        ),
        (
            "a login shell",
            "is \"$(echo 'shopt -q login_shell && echo login' | f -T ada@gate)\" login",
        ),
        (
            "the client goes away, the program hears of it",
            "f ada@gate 'echo $$; exec yes' | head -n 1 > pid || :
             f ada@gate \"tail --pid=$(cat pid) -f /dev/null\"",
        ),
        ("a subsystem", "f -s ada@gate sftp < /dev/null"),
        ("-p is read over with a note", "f -p 2222 ada@gate true 2> err; grep -q port err"),
        (
            "no such node, no such account, no such option",
            "exits 255 f ada@nowhere true 2> err; grep -q nowhere err
             exits 255 f eve@gate true 2> err; grep -q eve err
             exits 2 f -o NoSuchOption=1 ada@gate true 2> err
             grep -q NoSuchOption err",
        ),
        (
            "--explain shows where the time went",
            "f --explain ada@gate true 2> err; grep -qi 'round trip' err; grep -q node err; grep -q proxy err",
        ),
    ]);
}

#[test]
fn forwards_go_through_the_proxy() {
    let begin = "python $PEERS/python/echo.py 7100 $PWD/echo.sock & listens 7100; listens $PWD/echo.sock
        chmod 777 echo.sock . ..; bg() { f -N \"$@\" ada@gate & pids+=($!); }
        says() { is \"$(echo hello | nc -N \"$@\")\" hello; }\n";
    let rows = [
        (
            "-L",
            "bg -L 7001:127.0.0.1:7100; listens 7001; says 127.0.0.1 7001",
        ),
        (
            "-L to a unix socket",
            "bg -L 7001:$PWD/echo.sock; listens 7001; says 127.0.0.1 7001",
        ),
        (
            "-L from a unix socket",
            "bg -L $PWD/in.sock:127.0.0.1:7100; listens $PWD/in.sock; says -U in.sock",
        ),
        (
            "-R",
            "bg -R 7001:127.0.0.1:7100; listens 7001; says 127.0.0.1 7001",
        ),
        (
            "-D",
            "bg -D 7001; listens 7001; for v in 4 5; do says -X $v -x 127.0.0.1:7001 127.0.0.1 7100; done",
        ),
        ("-W", "is \"$(echo hello | f -W 127.0.0.1:7100 ada@gate)\" hello"),
        (
            "20 MB both ways through -L and through -R",
            "noise 20M > in; bg -L 7001:127.0.0.1:7100 -R 7002:127.0.0.1:7100; listens 7001; listens 7002
             for port in 7001 7002; do python $PEERS/python/echo.py to 127.0.0.1 $port < in | cmp - in; done",
        ),
        (
            "the agent",
            "eval $(ssh-agent) > /dev/null; ssh-add -q $T/user_ed25519; want=$(ssh-add -l)
             is \"$(f -A ada@gate ssh-add -l)\" \"$want\"; exits 2 f -a ada@gate ssh-add -l 2> /dev/null || :
             ssh-agent -k > /dev/null",
        ),
    ];
    let scripts: Vec<(&str, String)> = rows
        .iter()
        .map(|(n, s)| (*n, format!("{begin}{s}\nkill \"${{pids[@]}}\" 2> /dev/null || :")))
        .collect();
    let rows: Vec<(&str, &str)> = scripts.iter().map(|(n, s)| (*n, s.as_str())).collect();
    drive(&rows);
}

#[test]
fn tools_go_through_the_proxy() {
    drive(&[
        (
            "rsync both ways",
            "export RSYNC_RSH=\"$FLEETGATE ssh\"; mkdir -p tree/sub; noise 5M > tree/big
             for n in {1..50}; do echo $n > tree/sub/$n; done
             rsync -a tree/ ada@gate:tree; rsync -a ada@gate:tree/ back; diff -r tree back; f ada@gate rm -r tree",
        ),
        (
            "git clone and push",
            "export GIT_SSH_COMMAND=\"$FLEETGATE ssh\" GIT_CONFIG_NOSYSTEM=1
             git config --global user.email a@b.test; git config --global user.name A; git config --global init.defaultBranch main
             f ada@gate git init -q --bare repo.git; git clone -q ada@gate:repo.git one 2> /dev/null
             cd one; noise 5M > big; git add .; git commit -qm first; git push -q origin HEAD:main; cd ..
             git clone -q ssh://ada@gate/run/home/ada/repo.git two; cmp one/big two/big; f ada@gate rm -rf repo.git",
        ),
        (
            "scp and sftp, through the system's own",
            "noise 5M > f1; \"$FLEETGATE\" scp f1 ada@gate:f2; \"$FLEETGATE\" scp ada@gate:f2 f3; cmp f1 f3
             echo 'get f2 f4' | \"$FLEETGATE\" sftp -b - ada@gate > /dev/null; cmp f1 f4; rm $HOMES/ada/f2",
        ),
    ]);
}

#[test]
fn plain_ssh_by_the_written_configuration_and_by_jump() {
    drive(&[
        (
            "fleetgate config ssh",
            "\"$FLEETGATE\" config ssh > config; is \"$(ssh -F config ada@gate.test id -un)\" ada
             ssh -F config -O exit ada@gate.test 2> /dev/null || :",
        ),
        (
            "ProxyCommand by hand",
            "H=$FLEETGATE_HOME; o=(-F /dev/null -i $H/id -o IdentitiesOnly=yes -o UserKnownHostsFile=$H/known_hosts)
             is \"$(ssh \"${o[@]}\" -o ProxyCommand=\"$FLEETGATE proxy-command %h %p\" ada@gate id -un)\" ada",
        ),
        (
            "ssh -J",
            "H=$FLEETGATE_HOME; printf 'IdentityFile %s/id\\nIdentitiesOnly yes\\nUserKnownHostsFile %s/known_hosts\\nBatchMode yes\\n' $H $H > config
             is \"$(ssh -F config -J ada@127.0.0.1:3080 ada@gate id -un)\" ada
             exits 255 ssh -F config -J ada@127.0.0.1:3080 ada@nowhere true 2> err; grep -q nowhere err",
        ),
        (
            "ssh -J with README's line asks nothing",
            // ssh looks for ~/.ssh where the account's entry says; a file of its own stands in for that one.
            "H=$FLEETGATE_HOME; line=$(grep -o \"sed .* ~/.fleetgate/known_hosts\" $PEERS/../../README.md | head -n 1); test -n \"$line\"
             line=$(echo \"$line\" | sed \"s|~/.fleetgate|$H|; s|gate.example.org|127.0.0.1|; s|web[*]|gate|\")
             eval \"$line\" > believed
             printf 'IdentityFile %s/id\\nIdentitiesOnly yes\\nUserKnownHostsFile %s\\nBatchMode yes\\nStrictHostKeyChecking yes\\n' $H $PWD/believed > config
             is \"$(ssh -F config -J ada@127.0.0.1:3080 ada@gate id -un)\" ada
             : > believed; exits 255 ssh -F config -J ada@127.0.0.1:3080 ada@gate true 2> /dev/null",
        ),
        (
            "a label that no node has",
            "exits 255 f -l ada 'no=such' true 2> err; grep -q 'no=such' err",
        ),
    ]);
}
