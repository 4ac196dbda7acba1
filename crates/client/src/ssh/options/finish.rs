//! Behind the last word of the command line: what the file of `-F` adds, and whether all of it goes together.

use super::{Line, Options, Strict, X11, file, host_and_port, is_selector};
use crate::ssh::Work;
use fleetgate_wire::master::container_at;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStringExt;

impl Line {
    /// `-F`: what the file says for this host, behind what the command line says.
    pub(super) fn files(&mut self, host: &str) -> Result<(), String> {
        let Some(config) = self.config.take() else {
            return Ok(());
        };
        let text = crate::files::read_text(&config).map_err(|e| e.to_string())?;
        for line in file::options(&text, host).map_err(|e| format!("{}: {e}", config.display()))? {
            self.option_word(&line.text)
                .map_err(|e| format!("{}:{}: {e}", config.display(), line.number))?;
        }
        Ok(())
    }

    /// Takes the container off `NODE+CONTAINER`. What a file says for the node, and `%h` there, is by the node's name.
    pub(super) fn node_of<'a>(&mut self, host: &'a str) -> Result<&'a str, String> {
        // No node's name has a `+`; a server's that is named with --direct is the name service's.
        match container_at(host.as_bytes()) {
            Some(at) if !self.options.direct => {
                if self
                    .options
                    .container
                    .replace(host[at + 1..].to_owned())
                    .is_some()
                {
                    return Err(format!("--container: {host:?} names a container already"));
                }
                Ok(&host[..at])
            }
            _ => Ok(host),
        }
    }

    pub(super) fn finish(mut self, host: &str) -> Result<Options, String> {
        let o = &mut self.options;
        // ssh_config(5), HostName: `%h` is the host as it was given.
        let host = match &self.host_name {
            Some(name) => name.replace("%h", host),
            None => host.to_owned(),
        };
        let host = host.as_str();
        let is_missing = |user: &str| user.is_empty() || user.starts_with('+');
        if o.user.as_deref().is_some_and(is_missing) || host.is_empty() {
            return Err("a name is missing: [USER@]NODE".into());
        }
        let (host, port) = match (o.direct, host.strip_prefix('[').and_then(|h| h.split_once(']'))) {
            (true, Some((host, port))) => (host, port.strip_prefix(':').filter(|p| !p.is_empty())),
            (true, None) if host.matches(':').count() == 1 => {
                let (host, port) = host.split_once(':').unwrap_or((host, ""));
                (host, Some(port))
            }
            _ => (host, None),
        };
        if let Some(container) = &o.container {
            if container.is_empty() || host.is_empty() {
                return Err("a name is missing: [USER@]NODE+CONTAINER".into());
            }
            if let Some(user) = o.user.as_deref().filter(|user| user.contains('+')) {
                return Err(format!("--container: {user:?} names a container already"));
            }
        }
        o.host = host.to_owned();
        let said = port
            .map(|p| p.parse().map_err(|_| format!("{p:?} is no port")))
            .transpose()?;
        o.port = said.or(self.port);
        if let Some(address) = &o.address {
            host_and_port(address).map_err(|why| format!("--address: {why}"))?;
            if o.direct {
                return Err(
                    "--direct goes to the host that is named: leave out --address, or leave out --direct"
                        .into(),
                );
            }
            if o.proxy.is_some() {
                return Err("--address goes through no proxy: leave out -J, or leave out --address".into());
            }
            if is_selector(&o.host) {
                return Err(format!(
                    "--address is one node's, and {:?} may be several: name the node",
                    o.host
                ));
            }
        }
        if !o.direct {
            if self.port.is_some() {
                o.notes.push(
                    "a node is reached through the proxy and has no port: it is ignored (--address HOST:PORT goes without \
                     the proxy)"
                        .into(),
                );
            }
            if !o.identities.is_empty() {
                o.notes
                    .push("-i is for --direct, and is ignored: a node gets the login's own key".into());
            }
            if o.alias.is_some() {
                return Err("HostKeyAlias is for --direct: a node is known by its own name".into());
            }
            if o.strict != Strict::Yes && self.set.contains("StrictHostKeyChecking")
                || !o.known_hosts.is_empty()
                || o.global_hosts.is_some()
            {
                o.notes.push(
                    "a node is known by the cluster's authorities, always: StrictHostKeyChecking and files of known hosts \
                     are for --direct, and are ignored"
                        .into(),
                );
            }
        } else if o.proxy.is_some() {
            return Err("--direct goes through no proxy: leave out -J, or leave out --direct".into());
        }
        if self.clear {
            (o.locals, o.remotes) = (Vec::new(), Vec::new());
        }
        o.x11 = self.x11.then_some(match self.trusted {
            true => X11::Trusted,
            false => X11::Untrusted,
        });
        let mut command = self.command.join(OsStr::new(" ")).into_vec();
        match self.remote_command {
            Some(_) if !command.is_empty() => {
                return Err("RemoteCommand says what is to run, and a command stands on the line too".into());
            }
            Some(remote) => command = remote.into_bytes(),
            None => {}
        }
        o.work = match (self.to, self.no_command, self.subsystem, command.is_empty()) {
            (Some(to), _, _, true) => Work::To(to),
            (Some(_), ..) => return Err("-W is a connection and takes no command".into()),
            (None, true, _, true) => Work::None,
            (None, true, ..) => return Err("-N says that there is no command, and there is one".into()),
            (None, false, true, true) => return Err("-s: which subsystem?".into()),
            (None, false, true, false) => Work::Subsystem(command),
            (None, false, false, true) => Work::Shell,
            (None, false, false, false) => Work::Exec(command),
        };
        if o.background {
            match o.work {
                Work::Shell => {
                    return Err("-f: there is no command to run in the background; -N forwards alone".into());
                }
                Work::To(_) => {
                    return Err(
                        "-f: -W is about standard input and output, and the background has none".into(),
                    );
                }
                _ => o.input = false,
            }
        }
        Ok(self.options)
    }
}
