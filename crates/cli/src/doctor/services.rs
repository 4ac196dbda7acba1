//! The cluster's services on this machine, as somebody beside them sees them: does auth answer and is its state open, does
//! the proxy answer and reach auth, is a certificate or a disk near its end, is a replaced program still running. It asks
//! what any client may ask and reads files; it changes and starts nothing.

use super::node::{Finding, Grade};
use super::{CLOCK, archive, finding};
use crate::cluster::{self, Role};
use crate::{output, services};
use fleetgate_client::connect::{self, AdminEndpoint};
use fleetgate_client::error::ClientError;
use fleetgate_client::{files, login, time};
use fleetgate_net::dial;
use fleetgate_net::tls::{Believe, Credentials, Trust};
use fleetgate_policy::cluster::State;
use fleetgate_policy::toml_mistake::Mistake;
use fleetgate_proto::v1::identity_client::IdentityClient;
use fleetgate_proto::v1::{Authority, Empty, HelloReply, Signed};
use fleetgate_proxy::config::Config as ProxyConfig;
use fleetgate_proxy::identity;
use fleetgate_sys::file::{self, Room};
use fleetgate_sys::process;
use std::ffi::CString;
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

const AUTH: &str = "auth service";
const PROXY: &str = "proxy service";
const CERTIFICATE: &str = "proxy certificate";
/// What helps where a service does not run.
const START: &str = "start it: `systemctl start fleetgate`, or `fleetgate up`; its log says why it ended";
/// What helps where a service runs another program.
const RESTART: &str = "`systemctl restart fleetgate`, or start `fleetgate up` again: that ends no session";
/// A given certificate that ends sooner than this was not renewed when it should have been.
const GIVEN_SOON: u64 = 7 * 24 * 3600;
/// With less than this a service cannot go on for long; with less than the second, or the third's share, not for ever.
const ROOM_WRONG: u64 = 64 << 20;
const ROOM_LESS: u64 = 512 << 20;
const ROOM_SHARE: u64 = 50;
/// So many files at least have to be possible.
const FILES_WRONG: u64 = 100;

/// Looks at the services that the configuration names; a machine without one has none. `node` is the configuration whose
/// node was looked at already.
pub fn look(path: &Path, node: &Path) -> Vec<Finding> {
    let roles = match services(path, node) {
        Ok(roles) => roles,
        Err(why) => {
            return vec![finding(
                "services",
                Grade::Wrong,
                why,
                "correct that file; `fleetgate up` starts what it names",
            )];
        }
    };
    let mut findings = Vec::new();
    for role in roles {
        match role {
            Role::Auth => findings.extend(auth(path)),
            Role::Proxy => findings.extend(proxy(path)),
            // Examined by the node itself.
            Role::Node => {}
        }
    }
    findings
}

/// The roles that a configuration names; none, where there is none or it is a node's own.
fn services(path: &Path, node: &Path) -> Result<Vec<Role>, String> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(format!("{}: {e}", path.display())),
    };
    match toml::from_str::<toml::Table>(&text) {
        Ok(table) if ["auth", "proxy"].iter().any(|name| table.contains_key(*name)) => cluster::roles(path),
        Ok(_) => Ok(Vec::new()),
        // Said already.
        Err(_) if path == node => Ok(Vec::new()),
        Err(e) => Err(format!("{}: {}", path.display(), Mistake::new(&text, &e, &[]))),
    }
}

/// How the system's message about a file ends that somebody else may read.
const DENIED: &str = "(os error 13)";

fn auth(path: &Path) -> Vec<Finding> {
    let config = match services::auth_config(path) {
        Ok(config) => config,
        // The files that [[auth.export]] names are not everybody's.
        Err(why) if why.contains(DENIED) => return vec![finding(AUTH, Grade::Less, why, "run this as root")],
        Err(why) => return vec![finding(AUTH, Grade::Wrong, why, "correct [auth] in that file")],
    };
    let socket = config.directory.join(fleetgate_auth::SOCKET);
    match UnixStream::connect(&socket).map_err(|e| e.kind()) {
        Err(ErrorKind::PermissionDenied) => {
            let found = format!(
                "{} answers root and the service's own user alone",
                socket.display()
            );
            return vec![finding(AUTH, Grade::Less, found, "run this as root")];
        }
        Err(ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            let found = "does not run: nobody logs in, and nothing can be changed".to_owned();
            let mut findings = vec![finding(AUTH, Grade::Wrong, found, START)];
            findings.push(match config.state.look().map_err(|e| e.to_string()) {
                Ok(()) => {
                    let found = format!("{} can be read", config.state);
                    finding("auth state", Grade::Good, found, "")
                }
                // Rights are mended in a moment; a backup would take the place of a state that is whole.
                Err(why) if why.contains("run: chmod") => {
                    finding("auth state", Grade::Wrong, why, "do that, and start it again")
                }
                Err(why) => finding(
                    "auth state",
                    Grade::Wrong,
                    why,
                    "`fleetgate restore BACKUP --replace` puts a backup in its place",
                ),
            });
            findings.push(room("auth disk", &config.directory));
            return findings;
        }
        _ => {}
    }
    let asked = connect::run(async {
        let (reply, _) = login::hello(&mut IdentityClient::new(connect::by_socket(&socket).await?)).await?;
        let mut admin = AdminEndpoint::Socket(socket.clone()).admin().await?;
        Ok((reply, admin.authorities(Empty {}).await?.into_inner().authorities))
    });
    let mut findings = Vec::new();
    match asked {
        Err(why) => findings.push(finding(AUTH, Grade::Wrong, why.to_string(), RESTART)),
        Ok((reply, authorities)) => {
            let found = format!(
                "answers for the cluster {}, version {}; its state is open",
                reply.cluster, reply.version
            );
            let other = other_program(Role::Auth, path, &config.directory);
            findings.push(running(AUTH, found, Some(&reply.version), other));
            findings.push(auth_port(config.listen, &authorities));
            findings.push(archive::look(&config, RESTART));
        }
    }
    findings.push(room("auth disk", &config.directory));
    if config.recordings.is_some() {
        findings.push(room("recordings disk", &config.recordings()));
    }
    findings
}

/// A service that answers: of which version, and by which program.
fn running(what: &'static str, found: String, version: Option<&str>, other: Option<String>) -> Finding {
    let ours = env!("CARGO_PKG_VERSION");
    match (version, other) {
        (Some(theirs), _) if theirs != ours => {
            let found = format!("{found}; the program here is {ours}");
            finding(what, Grade::Less, found, RESTART)
        }
        (_, Some(other)) => finding(what, Grade::Less, format!("{found}; {other}"), RESTART),
        _ => finding(what, Grade::Good, found, ""),
    }
}

/// Proxies reach auth by TCP.
fn auth_port(listen: SocketAddr, authorities: &[Authority]) -> Finding {
    const WHAT: &str = "auth port";
    let wrong = |why: String| {
        finding(
            WHAT,
            Grade::Wrong,
            why,
            "no proxy reaches auth so: another program may have the port (`ss -ltnp`); `listen` in [auth] names another",
        )
    };
    let active = |a: &&Authority| a.kind == "tls" && a.phase == "active";
    let pin = authorities
        .iter()
        .find(active)
        .and_then(|a| a.fingerprint.parse().ok());
    let pin = pin.ok_or_else(|| "auth names no authority for TLS".to_owned());
    match pin.and_then(|pin| greet(listen, &Believe::Pin(pin)).map_err(|e| e.to_string())) {
        Ok(_) => finding(WHAT, Grade::Good, format!("{listen} answers"), ""),
        Err(why) => wrong(why),
    }
}

fn proxy(path: &Path) -> Vec<Finding> {
    let config = match ProxyConfig::load(path) {
        Ok(config) => config,
        Err(why) => {
            return vec![finding(
                PROXY,
                Grade::Wrong,
                why.to_string(),
                "correct [proxy] in that file",
            )];
        }
    };
    let directory = &config.state_directory;
    let now = time::now();
    let (leaf, state) = match identity::look(directory).map_err(|e| e.to_string()) {
        Ok(known) => known,
        Err(why) if process::effective_uid() != 0 => {
            return vec![finding(PROXY, Grade::Less, why, "run this as root")];
        }
        Err(why) => {
            return vec![finding(
                PROXY,
                Grade::Wrong,
                why,
                "join it again: `fleetgate token add --kind proxy` on auth's machine, then `fleetgate join` here",
            )];
        }
    };
    let mut findings = vec![
        answering(path, &config, &state),
        own_certificate(leaf.validity(), now),
    ];
    findings.extend(given_certificate(&config, now));
    findings.push(room("proxy disk", directory));
    findings
}

/// Whether the proxy that runs passes somebody on to auth.
fn answering(path: &Path, config: &ProxyConfig, state: &Signed) -> Finding {
    let listen = config.listen;
    let connected = connect::run(async {
        let connected = dial::connect(&near(listen).to_string(), dial::DEADLINE).await;
        connected
            .map(drop)
            // It names the address.
            .map_err(|e| ClientError::Refused(e.to_string()))
    });
    if let Err(why) = connected {
        return finding(PROXY, Grade::Wrong, format!("does not run: {why}"), START);
    }
    let greeted = trust(state).and_then(|believe| greet(listen, &believe).map_err(|e| e.to_string()));
    match greeted {
        Err(why) => finding(
            PROXY,
            Grade::Wrong,
            format!("{listen} answers, but auth is not reached through it: {why}"),
            &format!(
                "see that auth runs, and that it is at {} (`auth` in [proxy], `listen` in [auth]); the proxy's log says more",
                config.auth
            ),
        ),
        Ok((_, ahead)) if ahead.unsigned_abs() > CLOCK => finding(
            PROXY,
            Grade::Less,
            format!(
                "{listen} answers and reaches auth; the clocks are {} apart",
                time::span(ahead.unsigned_abs())
            ),
            "set this machine's clock (NTP)",
        ),
        Ok(_) => {
            let found = format!("{listen} answers and reaches auth");
            running(
                PROXY,
                found,
                None,
                other_program(Role::Proxy, path, &config.state_directory),
            )
        }
    }
}

/// The proxy renews it when a third of its time is left.
fn own_certificate(valid: std::ops::Range<u64>, now: u64) -> Finding {
    let found = format!("ends {}", time::seen_from(now, valid.end));
    let overdue = valid.end.saturating_sub(valid.start) / 4;
    match valid.end {
        end if end <= now => finding(
            CERTIFICATE,
            Grade::Wrong,
            found,
            "join it again: `fleetgate token add --kind proxy` on auth's machine, then `fleetgate join` here",
        ),
        end if end - now < overdue => finding(
            CERTIFICATE,
            Grade::Less,
            format!("{found}, and should have been renewed"),
            "the proxy renews it while it reaches auth: see its log",
        ),
        _ => finding(CERTIFICATE, Grade::Good, found, ""),
    }
}

/// The one of `tls_certificate`, which somebody else makes.
fn given_certificate(config: &ProxyConfig, now: u64) -> Option<Finding> {
    const WHAT: &str = "tls_certificate";
    let (Some(chain), Some(key)) = (&config.tls_certificate, &config.tls_key) else {
        return None;
    };
    let read = |path: &PathBuf| files::read(path).map_err(|e| e.to_string());
    let end = read(chain).and_then(|text| {
        let given = Credentials::given(&text, &read(key)?);
        given
            .map(|given| given.certificate().validity().end)
            .map_err(|e| format!("{}: {e}", chain.display()))
    });
    Some(match end {
        Err(why) => finding(WHAT, Grade::Wrong, why, "correct `tls_certificate` and `tls_key`"),
        Ok(end) => {
            let found = format!("{} ends {}", chain.display(), time::seen_from(now, end));
            let remedy = "renew it where it was made, then `systemctl restart fleetgate`";
            match end {
                end if end <= now => finding(WHAT, Grade::Wrong, found, remedy),
                end if end - now < GIVEN_SOON => finding(WHAT, Grade::Less, found, remedy),
                _ => finding(WHAT, Grade::Good, found, ""),
            }
        }
    })
}

/// Room for state and audit log.
fn room(what: &'static str, directory: &Path) -> Finding {
    let path = CString::new(directory.as_os_str().as_bytes()).unwrap_or_default();
    match file::room(&path) {
        Ok(room) => of_room(what, directory, room),
        Err(e) => finding(
            what,
            Grade::Wrong,
            format!("{}: {e}", directory.display()),
            "`state_directory` says where it is",
        ),
    }
}

fn of_room(what: &'static str, directory: &Path, room: Room) -> Finding {
    let found = format!(
        "{} MB of {} MB are left for {}",
        room.bytes_left >> 20,
        room.bytes >> 20,
        directory.display()
    );
    let remedy = "make room on that disk: a service that cannot write its audit log lets nothing be changed";
    // Some file systems do not count files.
    let few_files = room.files > 0 && room.files_left < FILES_WRONG;
    match room.bytes_left {
        _ if few_files => {
            let found = format!("{found}, and {} files", room.files_left);
            finding(what, Grade::Wrong, found, remedy)
        }
        left if left < ROOM_WRONG => finding(what, Grade::Wrong, found, remedy),
        left if left < ROOM_LESS || left < room.bytes / ROOM_SHARE => {
            finding(what, Grade::Less, found, remedy)
        }
        _ => finding(what, Grade::Good, found, ""),
    }
}

/// Whom the proxy of this machine believes.
fn trust(signed: &Signed) -> Result<Believe, String> {
    let state = State::parse_json(&signed.document);
    let state = state.map_err(|e| format!("the cluster's state cannot be read: {e}"))?;
    let trust = Trust::new(&state.trust.tls_ca).map_err(|e| e.to_string())?;
    Ok(Believe::Trust(trust))
}

/// Asks auth at this address, or by way of the proxy there.
fn greet(listen: SocketAddr, believe: &Believe) -> Result<(HelloReply, i64), ClientError> {
    connect::run(async {
        let mut auth = connect::identity(&near(listen).to_string(), believe, None).await?;
        login::hello(&mut auth).await
    })
}

/// A listener on every address is asked on loopback.
fn near(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// The program of a role's processes, where each of them runs another one than this: it was replaced since they began. An
/// old proxy that drains beside a new one is as it should be.
fn other_program(role: Role, config: &Path, state: &Path) -> Option<String> {
    let ours = fs::metadata("/proc/self/exe").ok()?;
    // It runs as the user that has its state, unless it is just beginning.
    let users = [fs::metadata(state).ok()?.uid(), process::effective_uid()];
    let mut others = Vec::new();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let owner = entry.metadata().map(|m| m.uid());
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        // Anybody can give a process of his own such a command line.
        if !owner.is_ok_and(|owner| users.contains(&owner)) || !is_of(role, config, &line) {
            continue;
        }
        let program = entry.path().join("exe");
        let theirs = fs::metadata(&program).ok()?;
        if (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino()) {
            return None;
        }
        others.push(fs::read_link(&program).ok()?);
    }
    let other = others.pop()?;
    Some(format!(
        "its program is {}, not this one",
        output::printable(&other.display().to_string())
    ))
}

/// Whether a process was started as `fleetgate ROLE --config CONFIG`, as `up` does.
fn is_of(role: Role, config: &Path, line: &[u8]) -> bool {
    let words: Vec<&[u8]> = line.split(|b| *b == 0).collect();
    let wanted = [role.name().as_bytes(), b"--config", config.as_os_str().as_bytes()];
    words.windows(3).any(|three| three == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graded(finding: &Finding) -> Grade {
        assert_eq!(
            finding.grade == Grade::Good,
            finding.remedy.is_empty(),
            "{finding:?}"
        );
        finding.grade
    }

    #[test]
    fn a_disk_that_fills_is_told_before_it_is_full() {
        const GB: u64 = 1 << 30;
        let room = |bytes, bytes_left, files, files_left| Room {
            bytes,
            bytes_left,
            files,
            files_left,
        };
        for (room, grade) in [
            (room(100 * GB, 50 * GB, 1000, 1000), Grade::Good),
            (room(2 * GB, GB, 0, 0), Grade::Good),
            (room(100 * GB, GB, 1000, 1000), Grade::Less),
            (room(GB, GB / 4, 1000, 1000), Grade::Less),
            (room(100 * GB, 1 << 20, 1000, 1000), Grade::Wrong),
            (room(100 * GB, 50 * GB, 1000, 3), Grade::Wrong),
        ] {
            let finding = of_room("auth disk", Path::new("/var/lib/fleetgate/auth"), room);
            assert_eq!(graded(&finding), grade, "{finding:?}");
        }
    }

    #[test]
    fn a_certificate_that_was_not_renewed_is_told_before_it_ends() {
        for (valid, grade) in [
            (0..1000, Grade::Wrong),
            (0..2000, Grade::Good),
            (0..1100, Grade::Less),
            (900..1100, Grade::Good),
        ] {
            let finding = own_certificate(valid.clone(), 1000);
            assert_eq!(graded(&finding), grade, "{valid:?} {finding:?}");
        }
    }

    #[test]
    fn processes_of_a_role_are_told_by_their_command_line() {
        let config = Path::new("/etc/fleetgate/fleetgate.toml");
        for (line, is) in [
            (
                "fleetgate\0proxy\0--config\0/etc/fleetgate/fleetgate.toml\0",
                true,
            ),
            (
                "fleetgate\0--log-level\0info\0proxy\0--config\0/etc/fleetgate/fleetgate.toml\0",
                true,
            ),
            ("fleetgate\0proxy\0--config\0/srv/fleetgate.toml\0", false),
            (
                "fleetgate\0auth\0--config\0/etc/fleetgate/fleetgate.toml\0",
                false,
            ),
            ("", false),
        ] {
            assert_eq!(is_of(Role::Proxy, config, line.as_bytes()), is, "{line:?}");
        }
    }

    #[test]
    fn a_version_or_program_that_was_replaced_is_told() {
        let ours = env!("CARGO_PKG_VERSION");
        for (version, other, grade) in [
            (Some(ours), None, Grade::Good),
            (None, None, Grade::Good),
            (Some("0.0.1"), None, Grade::Less),
            (
                Some(ours),
                Some("its program is /usr/bin/fleetgate (deleted), not this one"),
                Grade::Less,
            ),
        ] {
            let finding = running(AUTH, "answers".to_owned(), version, other.map(str::to_owned));
            assert_eq!(graded(&finding), grade, "{finding:?}");
        }
    }
}
