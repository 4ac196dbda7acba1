//! `fleetgate token …`.

use super::{Admin, call, lifetime, moment, removed, word};
use crate::flags::{Arguments, Outcome};
use crate::output::{self, print};
use fleetgate_proto::v1::{AddTokenRequest, Empty, JoinToken, TokenId};
use serde_json::{Value, json};

/// `token add`
pub fn add(given: &Arguments) -> Outcome {
    let request = AddTokenRequest {
        kind: given.value("kind").unwrap_or("node").to_owned(),
        lifetime: lifetime(given),
        reusable: given.has("reusable"),
        name: given.value("name").unwrap_or_default().to_owned(),
        labels: given.labels(),
    };
    let token = call(given, Admin::add_token, request)?;
    if given.has("json") {
        let mut document = document(&token);
        document["token"] = token.text.into();
        return output::json(&document);
    }
    eprintln!(
        "A token for a {}, good {} and {}; `fleetgate join --proxy HOST:PORT --token-file -` takes it:",
        token.kind,
        if token.reusable {
            "any number of times"
        } else {
            "once"
        },
        moment(token.expires, "for ever").replace("in ", "for ")
    );
    print(&format!("{}\n", token.text))
}

/// `token ls`
pub fn list(given: &Arguments) -> Outcome {
    let tokens = call(given, Admin::tokens, Empty {})?.tokens;
    let headings = ["id", "kind", "name", "good", "used", "ends"];
    output::list(given.has("json"), "tokens", &tokens, document, headings, |t| {
        let times = if t.reusable { "any" } else { "once" };
        let (used, ends) = (t.used.to_string(), moment(t.expires, "never"));
        [
            t.id.clone(),
            t.kind.clone(),
            t.name.clone(),
            times.to_owned(),
            used,
            ends,
        ]
    })
}

/// `token rm`
pub fn remove(given: &Arguments) -> Outcome {
    let id = word(given);
    call(given, Admin::remove_token, TokenId { id: id.clone() })?;
    removed(given, &id)
}

fn document(t: &JoinToken) -> Value {
    json!({
        "id": t.id, "kind": t.kind, "name": t.name, "reusable": t.reusable, "used": t.used, "expires": t.expires,
    })
}
