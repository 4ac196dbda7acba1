//! A whole cluster: auth, proxy and nodes, one of them a plain sshd, as administrators and users meet them.
#![forbid(unsafe_code)]

mod backups;
mod checks;
mod container_words;
mod containers;
mod draining;
mod exports;
mod icinga;
mod identity;
mod kept_connection;
mod lasting;
mod live;
mod newcomer;
mod plain_sshd;
mod plain_sshd_recordings;
mod plain_sshd_refusals;
mod probes;
mod proxy_tls;
mod recording_rounds;
mod recordings;
mod recordings_seen;
mod restarts;
mod rotation;
mod run;
mod serve;
mod services;
mod spans;
mod uploads;
