//! Other people's implementations of the protocol, as libraries: each does the same things and checks the answers.

use fleetgate_tests::peer::{Row, drive};

#[test]
fn libraries_of_other_languages_get_through() {
    let begin = "python $PEERS/python/echo.py 7100 $PWD/echo.sock & listens 7100; listens $PWD/echo.sock; chmod 777 echo.sock
        export NODE_PATH=$FETCHED/node/node_modules\n";
    let rows = [
        ("paramiko", "python $PEERS/python/with_paramiko.py"),
        ("asyncssh", "python $PEERS/python/with_asyncssh.py"),
        ("Go x/crypto/ssh", "needs $FETCHED/go/client; $FETCHED/go/client"),
        (
            "Go x/crypto/ssh, post-quantum key exchange",
            "needs $FETCHED/go/client; [ $SUBJECT = Sshd ] || $FETCHED/go/client mlkem768x25519-sha256",
        ),
        ("node ssh2", "needs $NODE_PATH/ssh2; node $PEERS/node/client.js"),
    ];
    let rows: Vec<Row> = rows
        .iter()
        .map(|(name, script)| Row::heavy(*name, format!("{begin}{script}")))
        .collect();
    drive(&rows);
}
