//! Every algorithm by itself: a client that offers no other gets through, moves a megabyte both ways, and says that
//! it was this one that was used.

use fleetgate_tests::peer::{Row, drive};

/// Key exchanges that OpenSSH's client has too; the post-quantum one is in `libraries.rs`, by Go's.
const KEX: [&str; 4] = [
    "curve25519-sha256",
    "curve25519-sha256@libssh.org",
    "ecdh-sha2-nistp256",
    "ecdh-sha2-nistp384",
];
const CIPHERS: [&str; 5] = [
    "chacha20-poly1305@openssh.com",
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "aes128-ctr",
    "aes256-ctr",
];
const MACS: [&str; 2] = ["hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com"];
/// Host keys: the algorithm and the file of known keys.
const HOST_KEYS: [(&str, &str); 8] = [
    ("ssh-ed25519", "known_hosts"),
    ("ecdsa-sha2-nistp256", "known_hosts"),
    ("rsa-sha2-256", "known_hosts"),
    ("rsa-sha2-512", "known_hosts"),
    ("ssh-ed25519-cert-v01@openssh.com", "known_authority"),
    ("ecdsa-sha2-nistp256-cert-v01@openssh.com", "known_authority"),
    ("rsa-sha2-256-cert-v01@openssh.com", "known_authority"),
    ("rsa-sha2-512-cert-v01@openssh.com", "known_authority"),
];
/// What nobody should be offered; a refusal says that nothing matches.
const REFUSED: [&str; 4] = [
    "KexAlgorithms=diffie-hellman-group1-sha1",
    "Ciphers=3des-cbc",
    "HostKeyAlgorithms=ssh-rsa",
    "MACs=hmac-md5 -o Ciphers=aes128-ctr",
];

/// A client with these options, and what its log has to say.
fn through(name: String, options: &str, says: &str) -> Row {
    Row::heavy(
        name,
        format!(
            "noise 1M > in; s -v {options} gate cat < in > out 2> log; cmp in out
             grep -qF '{says}' log || {{ cat log; fail 'it was another one'; }}"
        ),
    )
}

#[test]
fn each_algorithm_works_by_itself() {
    let mut rows = Vec::new();
    for kex in KEX {
        let options = format!("-o KexAlgorithms={kex}");
        rows.push(through(
            kex.to_owned(),
            &options,
            &format!("kex: algorithm: {kex}"),
        ));
    }
    for cipher in CIPHERS {
        let options = format!("-o KexAlgorithms=curve25519-sha256 -o Ciphers={cipher}");
        rows.push(through(
            cipher.to_owned(),
            &options,
            &format!("cipher: {cipher} "),
        ));
    }
    for (cipher, mac) in ["aes128-ctr", "aes256-ctr"]
        .iter()
        .flat_map(|c| MACS.map(|m| (c, m)))
    {
        let options = format!("-o KexAlgorithms=curve25519-sha256 -o Ciphers={cipher} -o MACs={mac}");
        rows.push(through(
            format!("{cipher} with {mac}"),
            &options,
            &format!("cipher: {cipher} MAC: {mac}"),
        ));
    }
    for (key, known) in HOST_KEYS {
        let options =
            format!("-o KexAlgorithms=curve25519-sha256 -o HostKeyAlgorithms={key} $(known {known})");
        rows.push(through(
            format!("host key {key}"),
            &options,
            &format!("host key algorithm: {key}"),
        ));
    }
    for cipher in [
        "aes128-gcm@openssh.com",
        "chacha20-poly1305@openssh.com",
        "aes128-ctr",
    ] {
        let script = format!(
            "s -v -o RekeyLimit=256K -o KexAlgorithms=curve25519-sha256 -o Ciphers={cipher} gate cat 2> log \\
                 < <(noise 4M) | cmp - <(noise 4M)
             n=$(grep -c 'SSH2_MSG_NEWKEYS received' log); [ $n -ge 10 ] || fail \"only $n key exchanges\""
        );
        rows.push(Row::heavy(format!("new keys under way, {cipher}"), script));
    }
    for option in REFUSED {
        let script =
            format!("exits 255 s -o LogLevel=INFO -o {option} gate true 2> err; grep -q 'no matching' err");
        rows.push(Row::heavy(format!("refused: {option}"), script));
    }
    rows.push(Row::heavy(
        "a host certificate of no known authority",
        "sed 's/gate.test/other.test/; s/127.0.0.1/127.0.0.2/' $T/known_authority > known
         exits 255 s -o UserKnownHostsFile=$PWD/known gate true 2> /dev/null",
    ));
    drive(&rows);
}
