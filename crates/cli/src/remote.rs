//! What reaches nodes: the list of them, and what plain ssh is told.

use crate::admin::nodes::print_nodes;
use crate::flags::{Arguments, Outcome};
use crate::help;
use crate::output::{self, print};
use fleetgate_checks::plugin::{self, Listing, Place};
use fleetgate_client::error::ClientError;
use fleetgate_client::master_client::{Keep, PERSIST, ProxyConnector};
use fleetgate_client::profile::Home;
use fleetgate_client::timings::Timings;
use fleetgate_client::{config, connect, files};
use fleetgate_policy::account_and_container;
use fleetgate_proto::v1::Node;
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// `ls`
pub fn list(given: &Arguments) -> Outcome {
    if given.has("containers") {
        return containers(given);
    }
    if let Some(flag) = ["login", "address"]
        .into_iter()
        .find(|flag| given.value(flag).is_some())
    {
        return Err(given.wrong(format!("--{flag} goes with --containers")).into());
    }
    let home = Home::find(given.value("home"))?;
    let selector = given.word().unwrap_or_default();
    let nodes = nodes(&home, selector)?;
    if nodes.is_empty() && !selector.is_empty() {
        return Err(ClientError::NothingMatches(selector.to_owned()).into());
    }
    print_nodes(given.has("json"), &nodes)
}

/// `ls --containers`
fn containers(given: &Arguments) -> Outcome {
    let Some(node) = given.word() else {
        return Err(given
            .wrong("--containers: of which NODE? `fleetgate ls` shows the nodes, then `fleetgate ls --containers NODE`")
            .into());
    };
    // Who may log in nowhere but in containers has no other login to ask by.
    let profile = Home::find(given.value("home"))
        .and_then(|home| home.profile())
        .ok();
    let login = profile
        .as_ref()
        .map(|profile| profile.login_to_list(given.value("login")));
    let place = Place {
        node,
        container: None,
        login: login.as_deref().or(given.value("login")),
        address: given.value("address"),
        home: given.value("home"),
    };
    let logins = profile.as_ref().map(|profile| profile.logins.as_slice());
    let code = plugin::list(
        &place,
        Listing::Containers,
        given.has("json"),
        &if_no_container(logins),
    )
    .map_err(|why| given.wrong(why.to_string()))?;
    if let (Some(used), None) = (&login, given.value("login")) {
        let others = other_accounts(logins.unwrap_or_default(), account_and_container(used).0);
        if !others.is_empty() {
            let others = others.into_iter().collect::<Vec<&str>>().join(", --login ");
            eprintln!(
                "fleetgate: these are for {}; you have logins of other accounts, which may lead into others: --login {}",
                output::printable(account_and_container(used).0),
                output::printable(&others)
            );
        }
    }
    Ok(code)
}

/// The accounts, but for this one, by which these logins lead into containers.
fn other_accounts<'a>(logins: &'a [String], account: &str) -> BTreeSet<&'a str> {
    let parts = logins.iter().map(|login| account_and_container(login));
    let into = parts.filter(|(_, container)| container.is_some());
    into.map(|(account, _)| account)
        .filter(|other| *other != account)
        .collect()
}

/// Why there may be no container for who has these logins, and what to do; none: who has no login of a cluster.
fn if_no_container(logins: Option<&[String]>) -> String {
    let Some(logins) = logins else {
        return "`containers` in the node's node.toml says whom it lets into which".to_owned();
    };
    let into: Vec<&str> = logins
        .iter()
        .map(String::as_str)
        .filter(|login| account_and_container(login).1.is_some())
        .collect();
    // Roles may have changed since.
    match into.as_slice() {
        [] => "when you last logged in, no role of yours led into containers: ask an administrator for one with a login such as \
               \"deploy+web*\""
            .to_owned(),
        into => format!(
            "when you last logged in, your logins into containers were {}: none that these fit runs there, or the role is for \
             other nodes or labels, or the node lets nobody into any; `fleetgate role test --login LOGIN USER@NODE` tells an \
             administrator which",
            into.join(", ")
        ),
    }
}

/// The nodes that a selector means, of those that the login may reach.
fn nodes(home: &Home, selector: &str) -> Result<Vec<Node>, ClientError> {
    let profile = home.login()?;
    connect::run(async {
        let mut connector = ProxyConnector::new(home, Keep::For(PERSIST), None, |_| {});
        let (_, nodes) = connector
            .nodes(&profile.proxy, selector, &mut Timings::default())
            .await?;
        Ok(nodes)
    })
}

/// `ssh`
pub fn ssh(given: &Arguments) -> Outcome {
    let help = || help::command(given.commands, given.command);
    Ok(fleetgate_client::ssh::command(&given.operands, &help))
}

/// `proxy-command`
pub fn proxy_command(given: &Arguments) -> Outcome {
    let home = Home::find(given.value("home"))?;
    let host = given.word().unwrap_or_default();
    let login = given.value("login").unwrap_or_default();
    connect::run(crate::proxy_command::run(&home, host, login))?;
    Ok(0)
}

/// `scp`
pub fn scp(given: &Arguments) -> Outcome {
    system("scp", given)
}

/// `sftp`
pub fn sftp(given: &Arguments) -> Outcome {
    system("sftp", given)
}

/// Becomes the system's program, with the login's keys and the way through the proxy for whatever host is named.
fn system(program: &'static str, given: &Arguments) -> Outcome {
    let home = Home::find(None)?;
    let profile = home.login()?;
    files::private_directory(&home.file("mux"))?;
    // What the user's own ssh_config says of other hosts is not meant for nodes. In a file, because an account that is
    // named as ACCOUNT@NODE has to come before it.
    let text = config::ssh_config(&home, &profile, &this_program()?, &["*"]);
    let config = home.file("scp_config");
    files::write(
        &config,
        0o600,
        format!("{text}    User {}\n", profile.account(None)).as_bytes(),
    )?;
    let mut command = Command::new(program);
    command.arg("-F").arg(&config);
    let failed = command.args(&given.operands).exec();
    let remedy = match failed.kind() {
        std::io::ErrorKind::NotFound => "; it is OpenSSH's: install its client",
        _ => "",
    };
    Err(ClientError::Unreachable(program.to_owned(), format!("{failed}{remedy}")).into())
}

/// `config ssh`
pub fn config_ssh(given: &Arguments) -> Outcome {
    let home = Home::find(given.value("home"))?;
    let profile = home.profile()?;
    let hosts: Vec<&str> = given.values("host").collect();
    if let Some(bad) = hosts.iter().find(|host| !config::is_host_pattern(host)) {
        return Err(ClientError::Usage(format!(
            "--host {bad:?} is no pattern of host names: letters, digits and ._:-*?! without blanks"
        ))
        .into());
    }
    let text = config::ssh_config(&home, &profile, &this_program()?, &hosts);
    // Where ControlPath points, ssh makes no directory.
    files::private_directory(&home.file("mux"))?;
    if !given.has("write") {
        return print(&text);
    }
    let path = home.file("ssh_config");
    files::write(&path, 0o600, text.as_bytes())?;
    print(&format!(
        "{} is written; with this line at the top of ~/.ssh/config plain ssh knows the nodes:\n\n    Include {}\n",
        path.display(),
        path.display()
    ))
}

/// `config container`
pub fn config_container(given: &Arguments) -> Outcome {
    let home = Home::find(given.value("home"))?;
    let host = given.word().unwrap_or_default();
    let is_told = config::write_container(&home, &home.profile()?, host)?;
    Ok(if is_told { 0 } else { 1 })
}

/// Where this program is, for other programs to execute.
fn this_program() -> Result<PathBuf, ClientError> {
    std::env::current_exe().map_err(|e| ClientError::File("/proc/self/exe".into(), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_accounts_that_lead_into_containers_are_told() {
        let logins = ["ada", "ada+web-*", "root+*", "root+db", "bob"].map(str::to_owned);
        assert_eq!(other_accounts(&logins, "ada"), BTreeSet::from(["root"]));
        assert_eq!(other_accounts(&logins[..2], "ada"), BTreeSet::new());
    }

    #[test]
    fn who_is_shown_no_container_is_told_whom_to_ask() {
        let of = |logins: &[&str]| {
            let logins: Vec<String> = logins.iter().map(ToString::to_string).collect();
            if_no_container(Some(&logins))
        };
        assert!(of(&["ada", "root"]).contains("no role of yours led into containers: ask an administrator"));
        assert!(of(&["ada", "ada+web*", "ada+db"]).contains("were ada+web*, ada+db: none that these fit"));
        assert!(if_no_container(None).contains("node.toml"));
    }
}
