//! One question put to the name services; runs in a worker, may take for ever.

use super::failed;
use fleetgate_sys::Errno;
use fleetgate_sys::glibc::nss::{self, HostError};
use fleetgate_sys::glibc::selinux::Libselinux;
use fleetgate_wire::common::{Account, Ageing, Endpoint, Ids};
use fleetgate_wire::names::{About, Found};
use std::ffi::{CStr, CString};
use std::path::Path;

/// The most bytes of names in one answer; what does not fit stays a number.
const MAX_NAMES: usize = 48 << 10;

/// The answer.
pub fn look_up(about: &About, selinux_required: bool) -> Found {
    let found = match about {
        About::User { name } => nss::user_by_name(name).and_then(account),
        About::UserById { uid } => nss::user_by_id(*uid).and_then(account),
        About::Names { uids, gids } => Ok(names(uids, gids)),
        About::Group { name } => nss::group_by_name(name).map(|g| match g {
            Some(group) => Found::Group { gid: group.gid },
            None => Found::Unknown,
        }),
        About::Host { name, port } => return host(name, *port),
        About::Context { user } => return context(user, selinux_required),
    };
    found.unwrap_or_else(|e| match e {
        Errno::E2BIG => failed(&format!("the account is in more than {} groups", nss::MAX_GROUPS)),
        e => failed(&format!("the name service failed: {e}")),
    })
}

fn account(user: Option<nss::User>) -> Result<Found, Errno> {
    let Some(user) = user else {
        return Ok(Found::Unknown);
    };
    let groups = nss::groups_of(&user.name, user.gid)?;
    let ageing = nss::shadow_of(&user.name)?.map(|s| Ageing {
        last_change: s.last_change,
        max_days: s.max_days,
        inactive_days: s.inactive_days,
        expires: s.expires,
        locked: s.locked,
    });
    Ok(Found::User {
        account: Account {
            name: user.name,
            ids: Ids {
                uid: user.uid,
                gid: user.gid,
                groups,
            },
            home: user.home,
            shell: user.shell,
            ageing,
        },
    })
}

/// A listing is better with some numbers in it than not at all: an id whose look-up fails has no name.
fn names(uids: &[u32], gids: &[u32]) -> Found {
    let mut room = MAX_NAMES;
    let mut fitting = |name: Option<CString>| {
        let name = name.unwrap_or_default();
        if name.as_bytes().len() > room {
            return CString::default();
        }
        room -= name.as_bytes().len();
        name
    };
    let users = uids
        .iter()
        .map(|uid| fitting(nss::user_by_id(*uid).ok().flatten().map(|u| u.name)))
        .collect();
    let groups = gids
        .iter()
        .map(|gid| fitting(nss::group_by_id(*gid).ok().flatten().map(|g| g.name)))
        .collect();
    Found::Names { users, groups }
}

fn host(name: &CStr, port: u16) -> Found {
    match nss::host(name) {
        Ok(addresses) => Found::Host {
            addresses: addresses
                .into_iter()
                .map(|a| Endpoint {
                    address: a.address,
                    scope: a.scope,
                    port,
                })
                .collect(),
        },
        Err(HostError::Unknown) => Found::Unknown,
        Err(HostError::Failed(why)) => Found::Failed { why },
    }
}

/// Without the library there is no context, which is right where the kernel has no SELinux, and a hole where it has.
fn context(user: &CStr, required: bool) -> Found {
    let active = Path::new("/sys/fs/selinux/enforce").exists();
    let remedy = "install libselinux1 (Debian) or libselinux (Fedora)";
    match Libselinux::open() {
        Ok(library) if library.is_enabled() => match library.login_context(user) {
            Ok(context) => Found::Context {
                context: Some(context),
            },
            Err(why) => Found::Failed { why },
        },
        Ok(_) if required => failed(
            "SELinux is required and the kernel does not run it: enable it, or set `selinux = \"auto\"` in node.toml",
        ),
        Err(why) if required || active => failed(&format!(
            "SELinux is {} and its library cannot be loaded ({}): {remedy}",
            if active { "active" } else { "required" },
            why.to_string_lossy()
        )),
        _ => Found::Context { context: None },
    }
}
