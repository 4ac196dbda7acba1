//! What a section may say, and what is said of one that is wrong: the line, the key, and what to do.

use super::{Directory, set_mode, sinks};

fn mistake(lines: &str) -> String {
    let text = format!("[auth]\nlisten = 1\n[[auth.export]]\n{lines}");
    sinks(&text).map(|_| ()).expect_err(lines).to_string()
}

#[test]
fn a_section_that_is_wrong_is_refused_with_its_line_and_what_to_do() {
    let directory = Directory::new();
    let open = directory.file("open", "Authorization: x");
    set_mode(&open, 0o644);
    let (open, empty) = (open.display().to_string(), directory.file("empty", ""));
    let bad = directory.file("bad", "# fine\nno header\n");
    let ours = directory.file("ours", "Content-Length: 5\n");
    let short = directory.file("short", "secret\n");
    let hook = "name = \"a\"\ntype = \"webhook\"\nurl = \"http://h/\"\n";
    let syslog = "name = \"a\"\ntype = \"syslog\"\naddress = \"h:1\"\n";
    for (lines, words) in [
        (
            "name = \"A b\"\ntype = \"syslog\"\n".to_owned(),
            "line 4: [[auth.export]]: `name` has 1 to 32",
        ),
        (
            "name = \"a\"\ntype = \"syslog\"\n".to_owned(),
            "`address` is missing: write address =",
        ),
        (
            "name = \"a\"\ntype = \"otlp\"\n".to_owned(),
            "`endpoint` is missing: write endpoint =",
        ),
        (
            "name = \"a\"\ntype = \"webhook\"\n".to_owned(),
            "`url` is missing: write url =",
        ),
        (syslog.to_owned(), "`ca` is missing"),
        (
            syslog.replace("h:1", "h"),
            "line 6: [[auth.export]]: `address` is a host and its port",
        ),
        (syslog.replace("h:1", "::1:5"), "`address` is a host and its port"),
        (
            format!("{syslog}url = \"http://h\"\n"),
            "line 7: [[auth.export]]: `url` does nothing where type = \"syslog\"",
        ),
        (
            format!("{syslog}tls = false\nca = \"x\"\n"),
            "`ca` does nothing where tls = false",
        ),
        (
            format!("{syslog}tls = false\nserver_name = \"x\"\n"),
            "`server_name` does nothing where tls = false",
        ),
        (
            format!("{syslog}ca = \"/nowhere\"\n"),
            "`ca`: /nowhere: No such file",
        ),
        (format!("{syslog}ca = {empty:?}\n"), "it is empty"),
        (
            format!("{syslog}ca = {bad:?}\n"),
            "there is no authority's certificate (PEM)",
        ),
        (
            format!("{hook}tls = true\n"),
            "`tls` does nothing where type = \"webhook\"",
        ),
        (
            format!("{hook}ca = \"x\"\n"),
            "`ca` does nothing where the URL begins with http:",
        ),
        (hook.replace("http://h/", "ftp://h/S3CRET"), "`url`: it is no URL"),
        (
            hook.replace("http://h/", "http://a:S3CRET@h/"),
            "give them in a file of headers",
        ),
        (hook.replace("http:", "https:"), "`ca` is missing"),
        (
            format!("{hook}headers_file = {open:?}\n"),
            "others may read or change it: chmod 600",
        ),
        (
            format!("{hook}headers_file = {bad:?}\n"),
            "line 2: it is no header: write NAME: VALUE",
        ),
        (
            format!("{hook}headers_file = {ours:?}\n"),
            "`content-length` is set by fleetgate: remove the line",
        ),
        (
            format!("{hook}signing_key_file = {short:?}\n"),
            "fewer than 16 characters: `openssl rand -hex 32`",
        ),
        (
            format!("{hook}[[auth.export]]\n{hook}"),
            "line 8: [[auth.export]]: another section has the name \"a\"",
        ),
    ] {
        let said = mistake(&lines);
        assert!(
            said.starts_with("line ") && said.contains(words),
            "{lines}: {said}"
        );
        assert!(!said.contains("S3CRET") && !said.contains("secret\n"), "{said}");
    }
    let many: String = (0..9)
        .map(|n| format!("[[auth.export]]\nname = \"a{n}\"\ntype = \"webhook\"\nurl = \"http://h/\"\n"))
        .collect();
    let said = sinks(&format!("[auth]\n{many}")).unwrap_err().to_string();
    assert!(said.contains("more than 8 sections"), "{said}");
    let certificate = format!("{syslog}ca = \"/etc/hostname\"\ncertificate = \"x\"\n");
    let said = mistake(&certificate);
    assert!(
        said.contains("belong together") || said.contains("`ca`"),
        "{said}"
    );
}

#[test]
fn hosts_that_are_names_are_known_since_they_have_to_be_looked_up() {
    for (host, looks_up) in [
        ("192.0.2.1", false),
        ("[2001:db8::1]", false),
        ("siem.example", true),
    ] {
        let hook = format!(
            "[auth]\n[[auth.export]]\nname = \"a\"\ntype = \"webhook\"\nurl = \"http://{host}:8/\"\n"
        );
        assert_eq!(sinks(&hook).unwrap()[0].looks_up(), looks_up, "{host}");
        let plain = format!(
            "[auth]\n[[auth.export]]\nname = \"a\"\ntype = \"syslog\"\naddress = \"{host}:8\"\ntls = false\n"
        );
        assert_eq!(sinks(&plain).unwrap()[0].looks_up(), looks_up, "{host}");
    }
}
