//! `fleetgate sessions verify`: whose keys count, and how a report is printed.

use super::place::{Place, place};
use super::{Progress, begun, complain, unable};
use crate::flags::{Arguments, Outcome};
use crate::node::read_about;
use crate::output::{self, counted};
use fleetgate_base::exit;
use fleetgate_node::config::host_keys::HostKeys;
use fleetgate_playback::clock::short;
use fleetgate_playback::store::Entry;
use fleetgate_playback::verify::{NAMESPACE, NotSigned, Problem, Report, verify as check};
use fleetgate_policy::text::printable;
use fleetgate_ssh::key::PublicKey;
use fleetgate_ssh::sshsig;
use serde_json::{Value, json};
use std::io::{BufReader, Read};
use std::path::Path;

/// Whose word the keys are: whoever does not want to believe auth has to know that it was asked.
const AS_AUTH_KNOWS: &str = "as auth knows them";
/// The longest file of keys.
const MAX_KEYS: u64 = 64 << 10;

/// Verifies recordings.
pub fn verify(given: &Arguments) -> Outcome {
    verify_all(given).map_err(unable)
}

fn verify_all(given: &Arguments) -> Outcome {
    if given.has("all") && (given.has("last") || given.word().is_some()) {
        return Err(given
            .wrong("`--all` is about every recording: neither SESSION nor `--last` goes with it")
            .into());
    }
    let place = place(given)?;
    let known = known_keys(given, &place)?;
    // Of the cluster's, one after the other is fetched and forgotten.
    let mut single = None;
    let (entries, unreadable) = match given.has("all") {
        true => begun(given, &place)?,
        false => {
            let (entry, keys) = place.one(given)?;
            single = Some(keys);
            (vec![entry], 0)
        }
    };
    if entries.is_empty() && unreadable == 0 {
        return Err("there is no recording to verify here: name another directory with --directory, or ask the cluster with --cluster".into());
    }
    let mut progress = Progress::new();
    let (mut documents, mut text, mut faults) = (Vec::new(), String::new(), unreadable);
    let (mut unverified, mut has_other_key) = (Vec::new(), false);
    for (n, entry) in entries.iter().enumerate() {
        progress.show(|| {
            format!(
                "{n} of {}, {faults} with faults",
                counted(entries.len() as u64, "recording", "recordings")
            )
        });
        let report = match (&place, single.take()) {
            (Place::Cluster(cluster), None) => {
                let fetched = cluster.fetch(&entry.id, &entry.maker).map_err(|e| e.to_string());
                fetched.and_then(|(entry, keys)| one(&entry, &known.or_those(&keys)?))
            }
            (_, keys) => known
                .or_those(&keys.unwrap_or_default())
                .and_then(|keys| one(entry, &keys)),
        };
        match report {
            Ok(report) => {
                faults += usize::from(!report.problems.is_empty());
                has_other_key |= report
                    .problems
                    .iter()
                    .any(|problem| matches!(problem, Problem::OtherKey(..)));
                match given.has("json") {
                    true => documents.push(document(entry, &report)),
                    false => text += &said(entry, &report),
                }
            }
            Err(e) => {
                progress.clear();
                complain(&format!("{}: {e}", entry.id));
                unverified.push(json!({ "session": entry.id, "why": e }));
            }
        }
    }
    progress.clear();
    let is_by_auth = matches!(known, Keys::OfAuth);
    if is_by_auth {
        text += &format!("keys {AS_AUTH_KNOWS}\n");
    }
    if has_other_key && !is_by_auth && !given.has("key") {
        text += "if the node had other host keys before: --cluster asks auth, which knows earlier ones, and --key FILE takes a key that \
                 you kept\n";
    }
    let all = entries.len() + unreadable;
    if all > 1 {
        text += &format!("{all} recordings, {faults} with faults");
        if !unverified.is_empty() {
            text += &format!(", {} could not be verified", unverified.len());
        }
        text.push('\n');
    }
    let whole = || {
        let mut whole = json!({ "recordings": documents, "unverified": unverified });
        if is_by_auth {
            whole["keys"] = AS_AUTH_KNOWS.into();
        }
        whole
    };
    output::either(given.has("json"), whole, || text)?;
    Ok(match (faults > 0, unverified.is_empty()) {
        (true, _) => exit::REFUSED,
        (false, false) => exit::USAGE,
        (false, true) => 0,
    })
}

fn one(entry: &Entry, keys: &[PublicKey]) -> Result<Report, String> {
    let tail = match entry.runs {
        true => Some(entry.tail().unwrap_or_default()),
        false => None,
    };
    let file = entry.file().map_err(|e| e.to_string())?;
    let mut file = BufReader::with_capacity(1 << 16, file);
    check(
        &mut file,
        &entry.session(),
        tail,
        &mut |text, signature| match sshsig::verify(signature, NAMESPACE, text.as_bytes()) {
            Ok(key) if keys.contains(&key) => Ok(key.fingerprint()),
            Ok(key) => Err(NotSigned::OtherKey(key.fingerprint())),
            Err(e) => Err(NotSigned::Wrong(e.to_string())),
        },
    )
    .map_err(|e| format!("{}: {e}", entry.path.display()))
}

/// Whose signatures count.
enum Keys {
    /// These.
    Known(Vec<PublicKey>),
    /// Those that auth names with each recording.
    OfAuth,
}

impl Keys {
    /// The keys that are known, or those that auth named.
    fn or_those(&self, named: &[String]) -> Result<Vec<PublicKey>, String> {
        match self {
            Keys::Known(keys) => Ok(keys.clone()),
            Keys::OfAuth => named
                .iter()
                .map(|line| {
                    PublicKey::from_line(line)
                        .map_err(|e| format!("a key that auth names cannot be read: {e}"))
                })
                .collect(),
        }
    }
}

/// The keys that may have signed: those that are given; else for the cluster those that auth names, and here the host keys of this
/// machine.
fn known_keys(given: &Arguments, place: &Place) -> Result<Keys, Box<dyn std::error::Error>> {
    match (place, given.has("key")) {
        (Place::Cluster(_), false) => Ok(Keys::OfAuth),
        _ => keys(given).map(Keys::Known),
    }
}

fn keys(given: &Arguments) -> Result<Vec<PublicKey>, Box<dyn std::error::Error>> {
    let mut keys = Vec::new();
    for path in given.values("key") {
        let mut text = String::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(MAX_KEYS).read_to_string(&mut text))
            .map_err(|e| {
                given.wrong(format!(
                    "--key {path}: {e}: give a file with public keys that you may read, as /etc/ssh/ssh_host_ed25519_key.pub"
                ))
            })?;
        if text.contains("PRIVATE KEY-----") {
            return Err(given
                .wrong(format!(
                    "--key {path}: this is a private key, which is not needed here: give the public key, which mostly is in {path}.pub"
                ))
                .into());
        }
        let lines = text
            .lines()
            .enumerate()
            .filter(|(_, l)| !l.trim().is_empty() && !l.starts_with('#'));
        for (number, line) in lines {
            let key = PublicKey::from_line(line).map_err(|e| {
                let number = number + 1;
                given.wrong(format!(
                    "--key {path}, line {number}: {e}: a line has one public key, as in /etc/ssh/ssh_host_ed25519_key.pub"
                ))
            });
            keys.push(key?);
        }
    }
    if given.has("key") {
        return match keys.is_empty() {
            true => Err(given
                .wrong("the files of `--key` hold no key: give a file as /etc/ssh/ssh_host_ed25519_key.pub")
                .into()),
            false => Ok(keys),
        };
    }
    let (config, is_users) = read_about(given)?;
    // To load them makes one where there is none, which is not for this command to do.
    let machine = ["ed25519", "ecdsa", "rsa"].map(|kind| format!("/etc/ssh/ssh_host_{kind}_key"));
    let own = config.state_directory.join("host_ed25519_key");
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    let has_machine = !is_users && machine.iter().any(|path| is_there(Path::new(path)));
    if config.host_keys.is_empty() && !has_machine && !is_there(&own) {
        return Err("this machine has no host keys: give the node's public key with --key FILE".into());
    }
    let loaded = HostKeys::load(&config, is_users)
        .map_err(|e| format!("{e}: try with sudo, or give the node's public key with --key FILE"))?;
    let blobs = loaded.public();
    let parsed = blobs.iter().map(|blob| PublicKey::parse(blob));
    Ok(parsed.collect::<Result<_, _>>()?)
}

fn state(entry: &Entry, report: &Report) -> String {
    match &report.end {
        Some(end) => end.summary(),
        None if entry.is_made() => "running".to_owned(),
        None if entry.runs => "unfinished".to_owned(),
        None => "no end".to_owned(),
    }
}

fn said(entry: &Entry, report: &Report) -> String {
    let word = match report.problems.is_empty() {
        false => "FAULT",
        true if is_unfinished(entry, report) => "UNFINISHED",
        true if report.signers.is_empty() => "unsigned",
        true => "good",
    };
    let mut text = format!(
        "{}  {word}  {}, {}, {}\n",
        entry.id,
        counted(report.blocks, "block", "blocks"),
        short(report.last),
        printable(&state(entry, report))
    );
    for signer in &report.signers {
        text += &format!(
            "    {} of {} {} signed by {} ({}, the last of {})\n",
            signer.covers,
            counted(report.blocks, "block", "blocks"),
            if signer.covers == 1 { "is" } else { "are" },
            signer.key,
            counted(signer.signatures, "signature", "signatures"),
            printable(&signer.signed)
        );
    }
    if is_unfinished(entry, report) {
        text += "    no node makes it any more, and none has finished it: one was killed, or had no room. A node finishes it within a \
                 minute of its start\n";
    } else if entry.runs && report.problems.is_empty() {
        text += "    it still runs, so it has no end; what was recorded in the last 5 minutes may wait for its signature\n";
    }
    if !report.begin.recipients.is_empty() {
        let recipients = report.begin.recipients.join(", ");
        text += &format!(
            "    it is encrypted for {}; no key was needed for this\n",
            printable(&recipients)
        );
    }
    if report.gaps > 0 {
        text += &format!(
            "    it says itself that something is left out, in {}\n",
            counted(report.gaps, "place", "places")
        );
    }
    for problem in &report.problems {
        text += &format!("    fault: {problem}\n");
    }
    text
}

/// It should be running, and no node has it.
fn is_unfinished(entry: &Entry, report: &Report) -> bool {
    entry.runs && report.end.is_none() && !entry.is_made()
}

fn document(entry: &Entry, report: &Report) -> Value {
    let signers: Vec<Value> = report
        .signers
        .iter()
        .map(|s| json!({ "key": s.key, "signatures": s.signatures, "blocks": s.covers, "signed": s.signed }))
        .collect();
    let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    json!({
        "session": entry.id, "good": problems.is_empty(), "running": entry.is_made(), "unfinished": is_unfinished(entry, report), "blocks": report.blocks,
        "frames": report.frames, "ended": report.end.is_some(), "gaps": report.gaps, "signed": signers, "encrypted": report.encrypted,
        "faults": problems,
    })
}
