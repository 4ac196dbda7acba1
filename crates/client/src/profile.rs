//! A login as it lies in `~/.fleetgate`: who, where, until when, and the keys. Nothing here talks to anybody.

use crate::error::ClientError;
use crate::{files, time};
use fleetgate_policy::account_name::INTO;
use fleetgate_policy::{account_and_container, login_matches};
use fleetgate_sys::glibc::nss;
use fleetgate_sys::process;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The directory of one person's login. Its files:
///
/// | file | holds |
/// |---|---|
/// | `profile.json` | who, where, until when ([`Profile`]) |
/// | `id`, `id.pub`, `id-cert.pub` | the SSH key and its certificate, as ssh reads them |
/// | `tls.key`, `tls.crt` | the TLS key and its certificates |
/// | `state.json` | the cluster's state at the login: whom to believe |
/// | `last.json` | after a logout: the [`Profile`] of that login, so that the next one knows proxy and user |
/// | `known_hosts` | the cluster's host authorities, as ssh reads them |
/// | `ssh_config` | from `fleetgate config ssh --write` |
/// | `scp_config` | what `fleetgate scp` and `sftp` tell OpenSSH's programs |
/// | `login.lock` | nothing: whoever writes or removes the login holds it |
/// | `device`, `device.pub`, `device.json` | this machine's own key, if it is enrolled |
/// | `mux/` | sockets of ssh's ControlMaster, and of whoever holds the connection to the proxy |
#[derive(Clone, Debug)]
pub struct Home(PathBuf);

/// Who is logged in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// `host:port`.
    pub proxy: String,
    /// The cluster's name.
    pub cluster: String,
    /// Who.
    pub user: String,
    /// What they are there.
    pub roles: Vec<String>,
    /// The accounts that these roles open; patterns as the roles have them.
    pub logins: Vec<String>,
    /// When the certificates were issued, Unix seconds.
    pub issued: u64,
    /// Until when they hold.
    pub expires: u64,
    /// Until when the login can be renewed with nobody there, Unix seconds; none: it cannot.
    #[serde(default)]
    pub renewable: Option<u64>,
    /// When the second factor was last shown.
    pub mfa: Option<u64>,
    /// The device that was shown to be there.
    pub device: Option<String>,
    /// By how many seconds this machine's clock was ahead of the cluster's.
    #[serde(default)]
    pub clock_ahead: i64,
}

impl Profile {
    /// Whether this came of one login with the other: the same certificate, or a later one.
    #[must_use]
    pub fn is_same_login(&self, other: &Profile) -> bool {
        (&self.user, &self.cluster, self.issued) == (&other.user, &other.cluster, other.issued)
    }

    /// The account that is meant where none is named: the only one that the roles open, or open for this container; else the
    /// one of the user's name in the cluster; else the one of the same name as here.
    #[must_use]
    pub fn account(&self, container: Option<&str>) -> String {
        // By the user's number, as ssh does: the master, which has no environment of the command's, comes to the same.
        self.account_of(container, name_by_id)
    }

    /// The login that is meant: `ACCOUNT`, `ACCOUNT+CONTAINER`, or these without the account.
    #[must_use]
    pub fn login(&self, named: &str) -> String {
        match (named, named.strip_prefix(INTO)) {
            ("", _) => self.account(None),
            (_, Some(container)) => format!("{}{named}", self.account(Some(container))),
            _ => named.to_owned(),
        }
    }

    fn account_of(&self, container: Option<&str>, here: impl FnOnce() -> Option<String>) -> String {
        let accounts = match container {
            Some(container) => match self.accounts_into(container) {
                none if none.is_empty() => self.accounts(),
                accounts => accounts,
            },
            None => self.accounts(),
        };
        match accounts.as_slice() {
            [one] if !one.contains(['*', '?', '{']) => (*one).to_owned(),
            all if all.contains(&self.user.as_str()) => self.user.clone(),
            _ => here().unwrap_or_else(|| self.user.clone()),
        }
    }

    /// The logins that the roles open, without those into containers of another one.
    fn accounts(&self) -> Vec<&str> {
        let is_account = |login: &&str| match account_and_container(login) {
            (account, Some(_)) => !self.logins.iter().any(|other| other == account),
            (_, None) => true,
        };
        self.logins
            .iter()
            .map(String::as_str)
            .filter(is_account)
            .collect()
    }

    /// The login by which a node's containers are listed: the account that is named or meant, or a login of it that only leads into
    /// containers, if there is no other.
    #[must_use]
    pub fn login_to_list(&self, named: Option<&str>) -> String {
        let account = named.map_or_else(|| self.account(None), str::to_owned);
        let is_there = self.logins.contains(&account);
        let of_it = |login: &&String| account_and_container(login).0 == account;
        let other = self.logins.iter().find(of_it).or_else(|| {
            let into_containers = |login: &&String| account_and_container(login).1.is_some();
            self.logins
                .iter()
                .find(into_containers)
                .filter(|_| named.is_none())
        });
        match other {
            Some(other) if !is_there => other.clone(),
            _ => account,
        }
    }

    /// The accounts as which the roles open this container.
    fn accounts_into(&self, container: &str) -> Vec<&str> {
        let mut accounts = Vec::new();
        for login in &self.logins {
            let (account, _) = account_and_container(login);
            if login_matches(login, &format!("{account}{INTO}{container}")) && !accounts.contains(&account) {
                accounts.push(account);
            }
        }
        accounts
    }
}

/// The user's own name on this machine: as the environment says, or as the account database has it.
pub(crate) fn name_here() -> Option<String> {
    let said = |name| std::env::var(name).ok().filter(|name: &String| !name.is_empty());
    said("USER").or_else(|| said("LOGNAME")).or_else(name_by_id)
}

pub(crate) fn name_by_id() -> Option<String> {
    let account = nss::user_by_id(process::effective_uid()).ok()??;
    account.name.into_string().ok()
}

impl Home {
    /// `--home`, else `FLEETGATE_HOME`, else `~/.fleetgate`.
    pub fn find(given: Option<&str>) -> Result<Home, ClientError> {
        if let Some(path) = given {
            return Ok(Home(absolute(path.into())?));
        }
        if let Some(path) = std::env::var_os("FLEETGATE_HOME").filter(|p| !p.is_empty()) {
            return Ok(Home(absolute(path.into())?));
        }
        match std::env::var_os("HOME").filter(|p| !p.is_empty()) {
            Some(home) => Ok(Home(absolute(PathBuf::from(home))?.join(".fleetgate"))),
            None => Err(ClientError::Usage(
                "HOME is not set; say where the login is with --home DIR or FLEETGATE_HOME".to_owned(),
            )),
        }
    }

    /// A file in it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes it, its owner's alone.
    pub fn make(&self) -> Result<(), ClientError> {
        files::private_directory(&self.0)
    }

    /// Refuses a home that others may write, as ssh does: they would say whom to believe. One that is not there is nobody's.
    pub fn check_mode(&self) -> Result<(), ClientError> {
        files::not_writable_by_others(&self.0)
    }

    /// A file that each login writes.
    pub fn read(&self, name: &str) -> Result<Zeroizing<Vec<u8>>, ClientError> {
        self.check_mode()?;
        files::read(&self.file(name)).map_err(of_login)
    }

    /// The same, of a secret: nobody else may read it.
    pub fn read_secret(&self, name: &str) -> Result<Zeroizing<Vec<u8>>, ClientError> {
        self.check_mode()?;
        files::read_secret(&self.file(name)).map_err(of_login)
    }

    /// The same, as text.
    pub fn read_text(&self, name: &str) -> Result<Zeroizing<String>, ClientError> {
        self.check_mode()?;
        files::read_text(&self.file(name)).map_err(of_login)
    }

    /// A file that each login writes, and that does not hold what it should.
    pub fn broken(&self, name: &str, why: &dyn std::fmt::Display) -> ClientError {
        of_login(ClientError::Broken(self.file(name), why.to_string()))
    }

    /// The login in it, whether or not its time is over.
    pub fn profile(&self) -> Result<Profile, ClientError> {
        self.check_mode()?;
        let text = match files::read(&self.file(PROFILE)) {
            Err(ClientError::File(_, e)) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(self.no_login());
            }
            read => read.map_err(of_login)?,
        };
        serde_json::from_slice(&text).map_err(|e| self.broken(PROFILE, &format_args!("cannot be read ({e})")))
    }

    /// What is wrong where there is no login in it.
    #[must_use]
    pub fn no_login(&self) -> ClientError {
        ClientError::NoLogin {
            home: self.0.clone(),
            was_there: self.last().is_some(),
        }
    }

    /// The login in it, which holds now.
    pub fn login(&self) -> Result<Profile, ClientError> {
        let profile = self.profile()?;
        let now = time::now();
        match profile.expires > now {
            true => Ok(profile),
            false => Err(ClientError::Expired {
                ago: now - profile.expires,
                user: profile.user,
                proxy: profile.proxy,
            }),
        }
    }

    /// Writes the login, its keys first: a profile that is there has its keys.
    pub fn save(&self, profile: &Profile, keys: &Keys) -> Result<(), ClientError> {
        self.make()?;
        let _one_at_a_time = self.lock()?;
        self.write(profile, keys)
    }

    /// The same of what came of the login `before`, whose key is `key`. If that was logged out or replaced meanwhile, nothing is
    /// written: it is not brought back, and no other login is lost.
    pub fn save_after(
        &self,
        (before, key): (&Profile, &str),
        profile: &Profile,
        keys: &Keys,
    ) -> Result<(), ClientError> {
        let _one_at_a_time = self.lock()?;
        let is_there = self.read_text("id").is_ok_and(|now| *now == *key)
            && self.profile().is_ok_and(|now| now.is_same_login(before));
        match is_there && profile.is_same_login(before) {
            true => self.write(profile, keys),
            false => Err(ClientError::Refused(
                "the login was logged out or replaced meanwhile, and stays as it is".to_owned(),
            )),
        }
    }

    /// Whether files can be written there, before what is to be written is asked for.
    pub fn is_writable(&self) -> Result<(), ClientError> {
        let probe = self.file("login.probe");
        files::write_unsynced(&probe, 0o600, b"")?;
        files::remove(&probe)
    }

    /// Nobody else writes or removes the login while this is held.
    fn lock(&self) -> Result<File, ClientError> {
        let path = self.file("login.lock");
        files::open_lock(&path)
            .and_then(|file| file.lock().map(|()| file))
            .map_err(ClientError::file(&path))
    }

    fn write(&self, profile: &Profile, keys: &Keys) -> Result<(), ClientError> {
        files::write(&self.file("id"), 0o600, keys.ssh.as_bytes())?;
        files::write(&self.file("id.pub"), 0o600, keys.ssh_public.as_bytes())?;
        files::write(&self.file("id-cert.pub"), 0o600, keys.ssh_certificate.as_bytes())?;
        files::write(&self.file("tls.key"), 0o600, keys.tls.as_bytes())?;
        files::write(&self.file("tls.crt"), 0o600, keys.tls_certificates.as_bytes())?;
        files::write(&self.file(STATE), 0o600, &keys.state)?;
        files::write(&self.file("known_hosts"), 0o600, keys.known_hosts.as_bytes())?;
        let text = serde_json::to_string_pretty(profile).unwrap_or_default() + "\n";
        files::write(&self.file(PROFILE), 0o600, text.as_bytes())
    }

    /// The login that was logged out last, for the next one: it opens nothing.
    pub fn last(&self) -> Option<Profile> {
        serde_json::from_slice(&files::read(&self.file(LAST)).ok()?).ok()
    }

    /// The file of that login, if there is one that cannot be read.
    #[must_use]
    pub fn damaged_last(&self) -> Option<PathBuf> {
        let path = self.file(LAST);
        (path.exists() && self.last().is_none()).then_some(path)
    }

    /// Removes the login. What stays is no secret but the device's key: where the cluster is, and by which authorities it is
    /// known (`state.json`). Without those the next login would need a new invite, or the hash from an administrator.
    pub fn forget(&self) -> Result<(), ClientError> {
        let _one_at_a_time = self.lock()?;
        for name in [
            "id",
            "id.pub",
            "id-cert.pub",
            "tls.key",
            "tls.crt",
            "known_hosts",
            "ssh_config",
            "scp_config",
        ] {
            files::remove(&self.file(name))?;
        }
        let _ = std::fs::remove_dir_all(self.file(crate::config::CONTAINERS));
        let profile = self.file(PROFILE);
        // One that cannot be read tells the next login nothing.
        if self.profile().is_ok() {
            files::write(&self.file(LAST), 0o600, &files::read(&profile)?)?;
        }
        files::remove(&profile)
    }
}

/// Whom the login believes.
pub(crate) const STATE: &str = "state.json";
/// Who is logged in.
const PROFILE: &str = "profile.json";
/// The profile of a login that is over by logout.
const LAST: &str = "last.json";

/// An error about a file that each login writes: it says so.
pub(crate) fn of_login(error: ClientError) -> ClientError {
    let (path, why) = match error {
        ClientError::File(path, e) => (path, e.to_string()),
        // It is whole, and has its own remedy.
        ClientError::Broken(path, why) if why.contains("run: chmod") => {
            return ClientError::Broken(path, why);
        }
        ClientError::Broken(path, why) => (path, why),
        other => return other,
    };
    // Without it a login does not know whom to believe.
    let remedy = match path.ends_with(STATE) {
        true => {
            "`fleetgate login --ca sha256:HASH` writes it anew; an administrator reads the hash in `fleetgate ca status`"
        }
        false if path.ends_with(PROFILE) => {
            "`fleetgate login --proxy HOST:PORT --user NAME --ca sha256:HASH` writes it anew; an administrator reads the hash \
             in `fleetgate ca status`"
        }
        false => "`fleetgate login` writes it anew",
    };
    ClientError::Broken(path, format!("{why}; {remedy}"))
}

/// The texts of the files of a login.
pub struct Keys {
    /// OpenSSH's format.
    pub ssh: Zeroizing<String>,
    /// One line.
    pub ssh_public: String,
    /// One line.
    pub ssh_certificate: String,
    /// PEM, PKCS #8.
    pub tls: Zeroizing<String>,
    /// PEM, the leaf first.
    pub tls_certificates: String,
    /// The state's document.
    pub state: Vec<u8>,
    /// `@cert-authority` lines.
    pub known_hosts: String,
}

/// A path that means the same in other processes, whose working directories differ.
fn absolute(path: PathBuf) -> Result<PathBuf, ClientError> {
    std::path::absolute(&path).map_err(|e| ClientError::File(path, e))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn profile() -> Profile {
        Profile {
            proxy: "proxy.example.org:3080".into(),
            cluster: "demo".into(),
            user: "alice".into(),
            roles: vec!["ops".into()],
            logins: vec!["root".into()],
            issued: 100,
            renewable: None,
            expires: u64::MAX / 2,
            mfa: Some(100),
            device: None,
            clock_ahead: 0,
        }
    }

    #[test]
    fn the_account_that_is_meant_where_none_is_named() {
        for (logins, here, account) in [
            (&["deploy"][..], Some("root"), "deploy"),
            (&["alice", "root"], Some("root"), "alice"),
            (&["postgres", "root"], Some("root"), "root"),
            (&["*"], Some("bob"), "bob"),
            (&[], None, "alice"),
            // Its containers are no other accounts; a name of a directory's is one.
            (&["deploy", "deploy+web-*"], Some("root"), "deploy"),
            (&["DOMAIN+bob"], Some("root"), "DOMAIN+bob"),
        ] {
            let mut profile = profile();
            profile.user = "alice".to_owned();
            profile.logins = logins.iter().map(|l| (*l).to_owned()).collect();
            let found = profile.account_of(None, || here.map(str::to_owned));
            assert_eq!(found, account, "{logins:?} {here:?}");
        }
    }

    #[test]
    fn the_account_into_a_container_is_the_one_that_may_enter_it() {
        for (logins, account) in [
            (&["deploy", "nagios+web"][..], "nagios"),
            (&["nagios+*", "nagios+web", "root+db"], "nagios"),
            (&["nagios+*", "alice+web"], "alice"),
            (&["nagios+*", "bob+web"], "here"),
            (&["{user.name}+*"], "here"),
            // None may: the node says so.
            (&["deploy"], "deploy"),
        ] {
            let mut profile = profile();
            profile.user = "alice".to_owned();
            profile.logins = logins.iter().map(|l| (*l).to_owned()).collect();
            let found = profile.account_of(Some("web"), || Some("here".to_owned()));
            assert_eq!(found, account, "{logins:?}");
        }
        let mut profile = profile();
        profile.logins = vec!["deploy".to_owned(), "nagios+web".to_owned()];
        let names = ["+web", "root+web", "root"].map(|named| profile.login(named));
        assert_eq!(names, ["nagios+web", "root+web", "root"]);
    }

    #[test]
    fn containers_are_listed_by_a_login_that_there_is() {
        for (logins, named, login) in [
            (&["deploy"][..], None, "deploy"),
            (&["deploy+*"], None, "deploy+*"),
            (&["deploy+web"], None, "deploy+web"),
            (&["deploy+*"], Some("deploy"), "deploy+*"),
            (&["deploy", "deploy+*"], Some("deploy"), "deploy"),
            // The node says that there is none.
            (&["deploy+*"], Some("root"), "root"),
        ] {
            let mut profile = profile();
            profile.logins = logins.iter().map(|l| (*l).to_owned()).collect();
            assert_eq!(profile.login_to_list(named), login, "{logins:?} {named:?}");
        }
    }

    #[test]
    fn a_home_that_others_may_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("fleetgate-open-home-{}", std::process::id()));
        let home = Home::find(path.to_str()).expect("a path");
        home.make().expect("made");
        files::write(&home.file(STATE), 0o600, b"{}").expect("written");
        let text = serde_json::to_vec(&profile()).expect("text");
        files::write(&home.file(PROFILE), 0o600, &text).expect("written");
        for (mode, is_taken) in [
            (0o700, true),
            (0o755, true),
            (0o720, false),
            (0o702, false),
            (0o777, false),
        ] {
            std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(mode)).expect("set");
            assert_eq!(home.login().is_ok(), is_taken, "{mode:o}");
            for read in [
                home.login().map(drop),
                home.read(STATE).map(drop),
                home.read_text(STATE).map(drop),
            ] {
                let Err(why) = read else { continue };
                let (words, remedy) = (why.to_string(), format!("chmod 0700 {}", path.display()));
                assert!(
                    words.contains(&format!("has mode {mode:04o}")) && words.ends_with(&remedy),
                    "{words}"
                );
            }
        }
        std::fs::remove_dir_all(home.path()).expect("removed");
    }

    #[test]
    fn a_login_is_read_as_it_was_written_and_forgotten_without_its_device() {
        let path = std::env::temp_dir().join(format!("fleetgate-home-{}", std::process::id()));
        let home = Home::find(path.to_str()).expect("a path");
        assert!(matches!(home.login(), Err(ClientError::NoLogin { .. })));
        let keys = Keys {
            ssh: Zeroizing::new("ssh".into()),
            ssh_public: String::new(),
            ssh_certificate: String::new(),
            tls: Zeroizing::new("tls".into()),
            tls_certificates: String::new(),
            state: Vec::new(),
            known_hosts: String::new(),
        };
        home.save(&profile(), &keys).expect("saved");
        assert_eq!(home.login().expect("there"), profile());
        let over = Profile {
            expires: 1,
            ..profile()
        };
        home.save(&over, &keys).expect("saved");
        let error = home.login().expect_err("over").to_string();
        assert!(
            error.contains("alice") && error.contains("--proxy proxy.example.org:3080"),
            "{error}"
        );
        files::write(&home.file("device"), 0o600, b"key").expect("written");
        // A renewal that comes too late brings nothing back: not after another login, and not after a logout.
        home.save(&profile(), &keys).expect("saved");
        let before = profile();
        home.save_after((&before, "ssh"), &profile(), &keys)
            .expect("renewed");
        assert!(home.save_after((&before, "another"), &profile(), &keys).is_err());
        let of_another = Profile {
            issued: 101,
            ..profile()
        };
        assert!(home.save_after((&before, "ssh"), &of_another, &keys).is_err());
        home.save(&over, &keys).expect("saved");
        home.forget().expect("forgotten");
        assert!(home.save_after((&before, "ssh"), &profile(), &keys).is_err());
        let left: Vec<_> = std::fs::read_dir(home.path())
            .expect("there")
            .map(|e| e.expect("entry").file_name())
            .collect();
        let left: std::collections::BTreeSet<_> = left.iter().filter_map(|name| name.to_str()).collect();
        assert_eq!(left, ["device", "last.json", "login.lock", "state.json"].into());
        assert!(
            matches!(home.login(), Err(ClientError::NoLogin { .. })),
            "logged out"
        );
        assert_eq!(home.last(), Some(over), "the next login knows where and who");
        files::write(&home.file("profile.json"), 0o600, b"{").expect("written");
        let error = home.login().expect_err("broken").to_string();
        assert!(
            error.contains("profile.json") && error.contains("writes it anew"),
            "{error}"
        );
        std::fs::remove_dir_all(home.path()).expect("removed");
    }
}
