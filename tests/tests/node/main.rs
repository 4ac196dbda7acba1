//! The node by itself: logins, sessions, rules, strangers and attackers, its tunnel, and the sessions it watches.
#![forbid(unsafe_code)]

mod abuse;
mod abuse_sessions;
mod attacks;
mod attacks_front;
mod attacks_front_orders;
mod attacks_outside;
mod attacks_tunnel;
mod attacks_watcher;
mod cluster;
mod joins_later;
mod keys_as_sshd;
mod logins;
mod logins_authorized_keys;
mod logins_certificates;
mod name_service;
mod networks;
mod pam;
mod pam_attacks;
mod pam_namespaces;
mod recording;
mod recording_deaths;
mod recording_rounds;
mod rules;
mod service;
mod session_ends;
mod sessions;
mod strangers;
mod tunnel;
mod watch;
mod watch_deaths;
