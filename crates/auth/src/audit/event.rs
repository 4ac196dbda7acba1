//! Auth's own events: their names and fields, and how one is put together: who, from where, what, before and after. It is a
//! line of JSON once it is built. docs/audit.md explains each field; every event may also have `by` and `source`.

use crate::clock::rfc3339;
use fleetgate_base::audit::{Description, cut};
use serde_json::{Map, Value};

fleetgate_base::descriptions! {
    CLUSTER_MADE = "cluster_made" [cluster, at],
    USER_ADDED = "user_added" [user, after],
    USER_CHANGED = "user_changed" [user, before, after],
    USER_RESET = "user_reset" [user],
    USER_REMOVED = "user_removed" [user, before],
    INVITE_ACCEPTED = "invite_accepted" [user],
    INVITE_REFUSED = "invite_refused" [reason],
    LOGIN = "login" [user, device, expires],
    LOGIN_REFRESHED = "login_refreshed" [user, mfa, renewed, device],
    LOGIN_REFUSED = "login_refused" [user, reason],
    DEVICE_ENROLLED = "device_enrolled" [user, device, after],
    DEVICE_APPROVED = "device_approved" [user, device, before, after],
    DEVICE_REMOVED = "device_removed" [user, device, before],
    ROLE_APPLIED = "role_applied" [role, before, after],
    ROLE_REMOVED = "role_removed" [role, before],
    LOCK_ADDED = "lock_added" [user, node, lock, session, after],
    LOCK_REMOVED = "lock_removed" [user, node, lock, session, before],
    LOCK_EXPIRED = "lock_expired" [user, node, lock, session],
    TOKEN_ADDED = "token_added" [token, after],
    TOKEN_REMOVED = "token_removed" [token, before],
    JOINED = "joined" [node, kind, token, key, labels],
    JOIN_REFUSED = "join_refused" [node, reason],
    RENEWED = "renewed" [node, kind, key],
    NODE_REMOVED = "node_removed" [node, kind, before],
    NODE_REGISTERED = "node_registered" [node, before, after],
    LOGIN_SIGNED = "login_signed" [user, node, login],
    LOGIN_DENIED = "login_denied" [user, node, login, rule, reason],
    HOST_SIGNED = "host_signed" [node],
    AUTHORITY_NEXT = "authority_next" [kind, after],
    AUTHORITY_ACTIVE = "authority_active" [kind, before, after],
    AUTHORITY_REMOVED = "authority_removed" [kind, before],
    AUTHORITY_CHANGED = "authority_changed" [kind, before, after],
    BACKUP = "backup" [path, bytes],
    RESTORED = "restored" [from],
    STRANGERS = "strangers" [of, source, count, first, last],
    RECORDING_PLAYED = "recording_played" [user, node, session, login, purpose, rule, offset],
    RECORDING_DELETED = "recording_deleted" [user, node, session, login, bytes, rule],
    RECORDING_REFUSED = "recording_refused" [user, node, session, login, what, rule, reason],
    CLOCK_SET = "clock_set" [seconds],
    AUDIT_GAP = "audit_gap" [source, log, missing_bytes],
    AUDIT_CUT = "audit_cut" [count, size, most, source],
    UNREADABLE = "unreadable" [origin],
    RECORDINGS_REMOVED = "recordings_removed" [reason, count, bytes],
}

/// The fields that every event may have: who did it, and from where.
const COMMON: [&str; 2] = ["by", "source"];

/// An event that is being put together.
#[derive(Clone, Debug)]
pub struct Event {
    time: u64,
    described: Description,
    user: Option<String>,
    node: Option<String>,
    fields: Map<String, Value>,
}

impl Event {
    /// Something that happened at `time` (milliseconds since 1970).
    pub fn new(described: Description, time: u64) -> Event {
        Event {
            time,
            described,
            user: None,
            node: None,
            fields: Map::new(),
        }
    }

    /// What happened.
    pub fn name(&self) -> &'static str {
        self.described.name
    }

    /// Whom it is about.
    pub fn user(mut self, user: &str) -> Event {
        self.check("user");
        self.user = Some(cut(user).into_owned());
        self
    }

    /// Which node it is about.
    pub fn node(mut self, node: &str) -> Event {
        self.check("node");
        self.node = Some(cut(node).into_owned());
        self
    }

    /// A further field; an empty text is left out.
    pub fn with(mut self, field: &'static str, value: impl Into<Value>) -> Event {
        self.check(field);
        match value.into() {
            Value::String(text) if text.is_empty() => {}
            Value::Null => {}
            Value::String(text) => {
                self.fields.insert(field.to_string(), cut(&text).into());
            }
            other => {
                self.fields.insert(field.to_string(), other);
            }
        }
        self
    }

    /// A field that the event's description lacks would be missing in docs/audit.md too.
    fn check(&self, field: &str) {
        debug_assert!(
            COMMON.contains(&field) || self.described.has(field),
            "{} has no {field}",
            self.described.name
        );
    }

    /// What happened, to whom, where: what the log is searched by.
    pub fn about(&self) -> (String, Option<String>, Option<String>) {
        (
            self.described.name.to_string(),
            self.user.clone(),
            self.node.clone(),
        )
    }

    /// The line.
    pub fn line(self) -> String {
        let mut line = Map::new();
        line.insert("time".to_string(), rfc3339(self.time).into());
        line.insert("event".to_string(), self.described.name.into());
        for (name, value) in [("user", self.user), ("node", self.node)] {
            if let Some(value) = value {
                line.insert(name.to_string(), value.into());
            }
        }
        line.extend(self.fields);
        Value::Object(line).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_line() {
        let event = Event::new(USER_ADDED, 1_000)
            .user("ada")
            .with("by", "uid 0 (unix socket)")
            .with("source", "")
            .with("after", serde_json::json!({"roles": ["access"]}));
        assert_eq!(
            event.line(),
            r#"{"time":"1970-01-01T00:00:01.000Z","event":"user_added","user":"ada","by":"uid 0 (unix socket)","after":{"roles":["access"]}}"#
        );
        let with = |text: &str| Event::new(RESTORED, 0).with("from", text).line();
        let long = with(&"ü".repeat(4096));
        assert!(long.len() < fleetgate_base::audit::MAX_TEXT + 100 && long.contains('…'));
        assert!(!with("a\nb").contains('\n'));
    }
}
