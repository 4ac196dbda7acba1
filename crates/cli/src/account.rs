//! Accounts of this machine for commands that run here: from /etc/passwd and /etc/group. A node asks its resolver, which knows
//! directories too.

use fleetgate_sys::process;
use fleetgate_wire::common::{Account, Ids};
use std::error::Error;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;

/// The most of a file that is read.
const MAX_FILE: u64 = 16 << 20;

/// The account that runs this, from /etc/passwd, else from the environment.
pub fn own() -> Result<Account, Box<dyn Error>> {
    let uid = process::effective_uid();
    let passwd = read("/etc/passwd").unwrap_or_default();
    let line = entries(&passwd).find(|fields| fields[2].parse() == Ok(uid));
    let of = |index: usize, variable: &str| -> Result<CString, Box<dyn Error>> {
        let text = match &line {
            Some(fields) => OsStr::new(fields[index]).to_owned(),
            None => std::env::var_os(variable).unwrap_or_default(),
        };
        Ok(CString::new(text.into_vec())?)
    };
    Ok(Account {
        name: of(0, "USER")?,
        ids: Ids {
            uid,
            gid: process::effective_gid(),
            groups: own_groups()?,
        },
        home: of(5, "HOME")?,
        shell: of(6, "SHELL")?,
        ageing: None,
    })
}

/// An account by its name; none: it does not stand in /etc/passwd.
pub fn named(name: &str) -> Result<Option<Account>, Box<dyn Error>> {
    let passwd = read("/etc/passwd").map_err(|e| format!("/etc/passwd: {e}"))?;
    let group = read("/etc/group").map_err(|e| format!("/etc/group: {e}"))?;
    account(name, &passwd, &group)
}

fn account(name: &str, passwd: &str, group: &str) -> Result<Option<Account>, Box<dyn Error>> {
    let Some(fields) = entries(passwd).find(|fields| fields[0] == name) else {
        return Ok(None);
    };
    let gid: u32 = fields[3].parse()?;
    let mut groups = vec![gid];
    for line in group.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        if let [_, _, id, members] = fields[..]
            && members.split(',').any(|member| member == name)
        {
            groups.push(id.parse()?);
        }
    }
    groups.dedup();
    Ok(Some(Account {
        name: CString::new(name)?,
        ids: Ids {
            uid: fields[2].parse()?,
            gid,
            groups,
        },
        home: CString::new(fields[5])?,
        shell: CString::new(fields[6])?,
        ageing: None,
    }))
}

fn entries(passwd: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    lines.filter(|fields| fields.len() == 7)
}

fn read(path: &str) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_FILE).read_to_string(&mut text)?;
    Ok(text)
}

/// This process's own supplementary groups.
fn own_groups() -> Result<Vec<u32>, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    Ok(line
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|gid| gid.parse().ok())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_its_groups() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nada:x:1000:100::/home/ada:/bin/bash\nodd:x:1\n";
        let group = "root:x:0:\nusers:x:100:ada\nadm:x:4:bob,ada\nother:x:5:adam\nodd\n";
        let ada = account("ada", passwd, group).expect("read").expect("there");
        assert_eq!((ada.ids.uid, ada.ids.gid), (1000, 100));
        assert_eq!(ada.ids.groups, [100, 4]);
        assert_eq!(ada.home.to_bytes(), b"/home/ada");
        for none in ["odd", "", "ad"] {
            assert!(account(none, passwd, group).expect("read").is_none(), "{none}");
        }
        assert!(account("x", "x:x:one:1::/:/bin/sh", group).is_err());
    }
}
