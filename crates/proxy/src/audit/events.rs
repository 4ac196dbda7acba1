//! The names and fields of the proxy's own events. docs/proxy.md explains them; every line also has `proxy`.

fleetgate_base::descriptions! {
    DIAL = "dial" [user, node, login, source, by],
    DIAL_ENDED = "dial_ended" [user, node, login, source, received, sent, lasted_ms, reason],
    DIAL_DENIED = "dial_denied" [user, node, login, source, reason, rule],
    JUMP_REFUSED = "jump_refused" [source, reason],
    STRANGERS = "strangers" [of, source, count, first, last],
    AUDIT_LOST = "audit_lost" [count],
}

/// The names and fields of the events of sessions on plain sshds. Nodes have events of the same names, with more fields.
pub mod plain {
    fleetgate_base::descriptions! {
        LOGIN_ACCEPTED = "login_accepted" [node, user, login, source],
        LOGIN_REFUSED = "login_refused" [node, user, login, source, reason],
        SESSION_STARTED = "session_started" [node, user, login, source, session, kind, command, recording, recorded, reason],
        RECORDED = "recorded" [node, user, login, source, session, blocks, bytes, chain, recovered],
        NOT_RECORDED = "not_recorded" [node, user, login, source, session, reason, ended],
        SESSION_ENDED = "session_ended" [node, user, login, source, session, code, inherited],
        DENIED = "denied" [node, user, login, source, what],
        CONNECTION_ENDED = "connection_ended" [node, user, login, source, reason],
    }
}

/// Whether the event of this name has this field.
pub(super) fn has(event: &str, field: &str) -> bool {
    let mut all = DESCRIPTIONS.iter().chain(plain::DESCRIPTIONS);
    all.any(|described| described.name == event && described.has(field))
}
