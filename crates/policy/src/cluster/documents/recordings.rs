//! `[role.NAME.recordings]` as a document: whose recordings and sessions a role's users may see. What it means is
//! `cluster::recordings`'s.

use crate::cluster::{MAX_ROLE_ENTRIES, MAX_SELECTOR, Name, RecordingRight, RecordingRights, Selector, USER};
use crate::text::shortened;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// The table.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordingsDocument {
    of: Vec<Owner>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) nodes: Option<Vec<Selector>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    logins: Option<Vec<LoginPattern>>,
    may: Vec<RecordingRight>,
}

/// A user's name, a pattern of names, or `{user}`.
#[derive(Serialize)]
#[serde(transparent)]
struct Owner(String);

impl<'de> Deserialize<'de> for Owner {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Owner, D::Error> {
        let text = String::deserialize(from)?;
        // A pattern is a name in which stars and question marks stand for something.
        let name = text.replace(['*', '?'], "x");
        if text != USER
            && let Err(why) = Name::parse(&name)
        {
            return Err(D::Error::custom(format!(
                "the user {:?}: it is a user's name, a pattern such as \"*\", or {USER:?}: {why}",
                shortened(&text)
            )));
        }
        Ok(Owner(text))
    }
}

/// An account, or a pattern of accounts.
#[derive(Serialize)]
#[serde(transparent)]
struct LoginPattern(String);

impl<'de> Deserialize<'de> for LoginPattern {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<LoginPattern, D::Error> {
        let text = String::deserialize(from)?;
        let is_wrong = |c: char| c.is_control() || "{}/:".contains(c);
        let behind = text.strip_prefix(USER).unwrap_or(&text);
        if text.is_empty() || text.len() > MAX_SELECTOR || behind.contains(is_wrong) {
            return Err(D::Error::custom(format!(
                "the login {:?}: it is an account's name, a pattern of names such as \"*\" or \"deploy+*\", or {USER:?}",
                shortened(&text)
            )));
        }
        Ok(LoginPattern(text))
    }
}

impl From<&RecordingRights> for RecordingsDocument {
    fn from(rights: &RecordingRights) -> RecordingsDocument {
        let is_all = rights.logins == ["*"];
        RecordingsDocument {
            of: rights.of.iter().cloned().map(Owner).collect(),
            nodes: (rights.nodes != [Selector::all()]).then(|| rights.nodes.clone()),
            logins: (!is_all).then(|| rights.logins.iter().cloned().map(LoginPattern).collect()),
            may: rights.may.clone(),
        }
    }
}

impl RecordingsDocument {
    /// What it says, within its bounds. A list that is empty would give nothing, which nobody writes down.
    pub(super) fn read(self) -> Result<RecordingRights, String> {
        let nodes = self.nodes.unwrap_or_else(|| vec![Selector::all()]);
        let logins = self.logins.unwrap_or_else(|| vec![LoginPattern("*".to_owned())]);
        for (what, count, remedy) in [
            ("of", self.of.len(), "name users, or \"*\" for everybody's"),
            ("nodes", nodes.len(), "leave it out for all nodes"),
            ("logins", logins.len(), "leave it out for all accounts"),
            ("may", self.may.len(), "name what may be done, as \"play\""),
        ] {
            if count == 0 {
                return Err(format!(
                    "`{what}` of its recordings is empty, so the table would give nothing: {remedy}"
                ));
            }
            if count > MAX_ROLE_ENTRIES {
                return Err(format!("its recordings have room for {MAX_ROLE_ENTRIES} {what}"));
            }
        }
        let mut may = self.may;
        may.sort();
        may.dedup();
        Ok(RecordingRights {
            of: self.of.into_iter().map(|owner| owner.0).collect(),
            nodes,
            logins: logins.into_iter().map(|login| login.0).collect(),
            may,
        })
    }
}
