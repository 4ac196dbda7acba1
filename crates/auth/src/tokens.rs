//! The tokens that machines join by.

use crate::audit::event;
use crate::cache::{self, StateCache};
use crate::caller::Caller;
use crate::documents::{Kind, Token};
use crate::error::{Refused, Result};
use crate::ledger::Plan;
use crate::secret::{Secret, fresh_id};
use crate::service::Service;
use crate::users::labels;
use fleetgate_net::Admits;
use fleetgate_policy::cluster::Name;
use fleetgate_proto::v1;
use fleetgate_store::Step;
use serde_json::json;

/// The most tokens.
pub const MAX_TOKENS: usize = 10_000;
/// How long a token is good, unless told.
pub const TOKEN: u64 = 3600;
/// The longest.
pub const MAX_TOKEN: u64 = 366 * 86_400;

impl Service {
    /// A token to join by.
    pub async fn add_token(&self, caller: &Caller, request: v1::AddTokenRequest) -> Result<v1::JoinToken> {
        let kind = Kind::parse(&request.kind)
            .ok_or_else(|| Refused::invalid("a token is for a \"node\" or a \"proxy\""))?;
        let lifetime = match u64::from(request.lifetime) {
            0 => TOKEN,
            seconds if seconds <= MAX_TOKEN => seconds,
            _ => return Err(Refused::invalid("a token is good for a year at most")),
        };
        let name = match request.name.as_str() {
            "" => None,
            name => Some(Name::parse(name).map_err(Refused::invalid)?),
        };
        if request.reusable && name.is_some() {
            return Err(Refused::invalid(
                "a token for one name cannot be used more than once: leave out the name or --reusable",
            ));
        }
        let token = Token {
            id: fresh_id()?,
            kind,
            expires: self.now() + lifetime,
            reusable: request.reusable,
            name,
            labels: labels(&request.labels)?,
            last: None,
        };
        let secret = Secret::fresh()?;
        let text = self.ticket(Admits::Machine, &secret)?;
        self.change(|cache| {
            if cache.tokens.len() >= MAX_TOKENS {
                return Err(Refused::busy(format!(
                    "there are {MAX_TOKENS} tokens, which is the most: remove some (fleetgate token rm)"
                )));
            }
            let event = self
                .event(event::TOKEN_ADDED, caller)
                .with("token", token.id.as_str())
                .with("after", token_in_event(&token));
            Ok(Plan::new(())
                .step(cache::create(cache::key(&["tokens", &secret.hash()]), &token))
                .event(event))
        })
        .await?;
        Ok(v1::JoinToken {
            text,
            ..token_shown(&self.cache(), &token)
        })
    }

    /// Nobody joins by it any more.
    pub async fn remove_token(&self, caller: &Caller, id: &str) -> Result<()> {
        self.change(|cache| {
            let mut all = cache.tokens.iter();
            let (hash, stored) = all.find(|(_, t)| t.document.id == id).ok_or_else(|| {
                Refused::missing("there is no such token: fleetgate token ls shows those there are")
            })?;
            let event = self
                .event(event::TOKEN_REMOVED, caller)
                .with("token", id)
                .with("before", token_in_event(&stored.document));
            Ok(Plan::new(())
                .step(Step::remove(cache::key(&["tokens", hash]), stored.revision))
                .event(event))
        })
        .await
    }

    /// All tokens, without what is secret about them.
    pub fn tokens(&self) -> v1::TokensReply {
        let cache = self.cache();
        let now = self.now();
        let good = cache
            .tokens
            .values()
            .map(|t| &t.document)
            .filter(|t| t.expires > now);
        v1::TokensReply {
            tokens: good.map(|t| token_shown(&cache, t)).collect(),
        }
    }
}

fn token_shown(cache: &StateCache, token: &Token) -> v1::JoinToken {
    let members = cache.nodes.values().chain(cache.proxies.values());
    v1::JoinToken {
        id: token.id.clone(),
        text: String::new(),
        kind: token.kind.name().to_string(),
        expires: token.expires,
        reusable: token.reusable,
        name: token.name.as_ref().map_or(String::new(), Name::to_string),
        used: u32::try_from(members.filter(|m| m.document.token == token.id).count()).unwrap_or(u32::MAX),
    }
}

fn token_in_event(token: &Token) -> serde_json::Value {
    json!({
        "kind": token.kind.name(),
        "name": token.name.as_ref().map(Name::as_str),
        "reusable": token.reusable,
        "labels": token.labels,
        "expires": crate::clock::rfc3339(token.expires * 1000),
    })
}
