//! `fleetgate token …`.

use super::{ask, labels, lifetime, moment, word};
use crate::flags::{Given, Outcome};
use crate::{print, show};
use fleetgate_proto::v1::{AddTokenRequest, Empty, JoinToken, TokenId};
use serde_json::{Value, json};

/// `token add`
pub fn add(given: &Given) -> Outcome {
    let request = AddTokenRequest {
        kind: given.value("kind").unwrap_or("node").to_owned(),
        lifetime: lifetime(given),
        reusable: given.has("reusable"),
        name: given.value("name").unwrap_or_default().to_owned(),
        labels: labels(given),
    };
    let token = ask(given, async |mut admin| {
        Ok(admin.add_token(request).await?.into_inner())
    })?;
    if given.has("json") {
        let mut document = document(&token);
        document["token"] = token.text.into();
        return show::json(&document);
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
pub fn list(given: &Given) -> Outcome {
    let tokens = ask(given, async |mut admin| {
        Ok(admin.tokens(Empty {}).await?.into_inner().tokens)
    })?;
    show::either(
        given.has("json"),
        || json!({ "tokens": tokens.iter().map(document).collect::<Vec<_>>() }),
        || {
            let row = |t: &JoinToken| {
                let times = if t.reusable { "any" } else { "once" };
                vec![
                    t.id.clone(),
                    t.kind.clone(),
                    t.name.clone(),
                    times.to_owned(),
                    t.used.to_string(),
                    moment(t.expires, "never"),
                ]
            };
            let rows: Vec<_> = tokens.iter().map(row).collect();
            show::table(&["id", "kind", "name", "good", "used", "ends"], &rows)
        },
    )
}

/// `token rm`
pub fn remove(given: &Given) -> Outcome {
    let id = word(given);
    ask(given, async |mut admin| {
        Ok(admin.remove_token(TokenId { id }).await?.into_inner())
    })?;
    Ok(0)
}

fn document(t: &JoinToken) -> Value {
    json!({
        "id": t.id, "kind": t.kind, "name": t.name, "reusable": t.reusable, "used": t.used, "expires": t.expires,
    })
}
