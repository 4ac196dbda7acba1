//! `fleetgate sessions verify`: whose keys count, and how a report is printed.

use super::{Progress, complain, directory, entry};
use crate::flags::{Arguments, Outcome};
use crate::output;
use fleetgate_base::exit;
use fleetgate_node::config::Config;
use fleetgate_node::config::host_keys::HostKeys;
use fleetgate_playback::clock::short;
use fleetgate_playback::store::{self, Entry, StoreError};
use fleetgate_playback::verify::{NAMESPACE, NotSigned, Report, verify as check};
use fleetgate_policy::text::printable;
use fleetgate_ssh::key::PublicKey;
use fleetgate_ssh::sshsig;
use serde_json::{Value, json};
use std::io::{BufReader, Read};
use std::path::Path;

/// The longest file of keys.
const MAX_KEYS: u64 = 64 << 10;

/// Verifies recordings.
pub fn verify(given: &Arguments) -> Outcome {
    if given.has("all") && (given.has("last") || given.word().is_some()) {
        return Err(given
            .wrong("`--all` is about every recording: neither SESSION nor `--last` goes with it")
            .into());
    }
    let entries = match given.has("all") {
        true => store::entries(&directory(given)?)?,
        false => vec![entry(given)?],
    };
    let keys = keys(given)?;
    let mut progress = Progress::new();
    let (mut documents, mut text, mut faults) = (Vec::new(), String::new(), 0);
    for (n, entry) in entries.iter().enumerate() {
        progress.show(|| format!("{n} of {} recordings, {faults} with faults", entries.len()));
        match one(entry, &keys) {
            Ok(report) => {
                faults += usize::from(!report.problems.is_empty());
                match given.has("json") {
                    true => documents.push(document(entry, &report)),
                    false => text += &said(entry, &report),
                }
            }
            Err(e) => {
                faults += 1;
                progress.clear();
                complain(&e.to_string());
            }
        }
    }
    progress.clear();
    if entries.len() > 1 {
        text += &format!("{} recordings, {faults} with faults\n", entries.len());
    }
    output::either(given.has("json"), || json!({ "recordings": documents }), || text)?;
    Ok(if faults > 0 { exit::REFUSED } else { 0 })
}

fn one(entry: &Entry, keys: &[PublicKey]) -> Result<Report, StoreError> {
    let tail = match entry.runs {
        true => Some(entry.tail().unwrap_or_default()),
        false => None,
    };
    let mut file = BufReader::with_capacity(1 << 16, entry.file()?);
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
    .map_err(|e| StoreError::Io(entry.path.clone(), e))
}

/// The keys that may have signed: those that are given, else the host keys of this machine.
fn keys(given: &Arguments) -> Result<Vec<PublicKey>, Box<dyn std::error::Error>> {
    let mut keys = Vec::new();
    for path in given.values("key") {
        let mut text = String::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(MAX_KEYS).read_to_string(&mut text))
            .map_err(|e| format!("{path}: {e}"))?;
        let lines = text
            .lines()
            .filter(|l| !l.trim().is_empty() && !l.starts_with('#'));
        for line in lines {
            keys.push(PublicKey::from_line(line).map_err(|e| format!("{path}: {e}"))?);
        }
    }
    if given.has("key") {
        return match keys.is_empty() {
            true => Err(
                "the files of `--key` hold no key: give a file as /etc/ssh/ssh_host_ed25519_key.pub".into(),
            ),
            false => Ok(keys),
        };
    }
    let config = Config::load(&crate::node::configuration(given))?;
    // To load them makes one where there is none, which is not for this command to do.
    let machine = ["ed25519", "ecdsa", "rsa"].map(|kind| format!("/etc/ssh/ssh_host_{kind}_key"));
    let own = config.state_directory.join("host_ed25519_key");
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    if config.host_keys.is_empty() && !machine.iter().any(|path| is_there(Path::new(path))) && !is_there(&own)
    {
        return Err("this machine has no host keys: give the node's public key with --key FILE".into());
    }
    let loaded = HostKeys::load(&config, false)
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
        "{}  {word}  {} blocks, {}, {}\n",
        entry.id,
        report.blocks,
        short(report.last),
        printable(&state(entry, report))
    );
    for signer in &report.signers {
        text += &format!(
            "    {} of {} blocks are signed by {} ({} signatures, the last of {})\n",
            signer.covers,
            report.blocks,
            signer.key,
            signer.signatures,
            printable(&signer.signed)
        );
    }
    if is_unfinished(entry, report) {
        text += "    no node makes it any more, and none has finished it: one was killed, or had no room. A node finishes it within a \
                 minute of its start\n";
    } else if entry.runs && report.problems.is_empty() {
        text += "    it still runs, so it has no end; what was recorded in the last 5 minutes may wait for its signature\n";
    }
    if report.gaps > 0 {
        text += &format!(
            "    it says itself that something is left out, in {} places\n",
            report.gaps
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
        "frames": report.frames, "ended": report.end.is_some(), "gaps": report.gaps, "signed": signers,
        "faults": problems,
    })
}
