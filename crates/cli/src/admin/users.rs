//! `fleetgate user …`.

use super::{ask, lifetime, moment, word};
use crate::flags::{Given, Outcome};
use crate::{print, show};
use fleetgate_proto::v1::{AddUserRequest, ChangeUserRequest, Empty, Invite, User, UserName};
use serde_json::{Value, json};

/// `user add`
pub fn add(given: &Given) -> Outcome {
    let request = AddUserRequest {
        name: word(given),
        roles: given.values("role").map(str::to_owned).collect(),
        invite_lifetime: lifetime(given),
    };
    let has_none = request.roles.is_empty();
    let invite = ask(given, async |mut admin| {
        Ok(admin.add_user(request).await?.into_inner())
    })?;
    if has_none {
        eprintln!(
            "{0} has no roles, and comes in nowhere: `fleetgate user change {0} --role ROLE` gives some.",
            invite.user
        );
    }
    hand_over(given, &invite)
}

/// `user reset`
pub fn reset(given: &Given) -> Outcome {
    let name = word(given);
    let invite = ask(given, async |mut admin| {
        Ok(admin.reset_user(UserName { name }).await?.into_inner())
    })?;
    hand_over(given, &invite)
}

/// The invite alone goes to standard output, so that a script can keep it.
fn hand_over(given: &Given, invite: &Invite) -> Outcome {
    if given.has("json") {
        return show::json(&json!({ "user": invite.user, "invite": invite.text, "expires": invite.expires }));
    }
    eprintln!(
        "The invite of {}, good once and {}; `fleetgate login --proxy HOST:PORT` asks for it:",
        invite.user,
        moment(invite.expires, "for ever").replace("in ", "for ")
    );
    print(&format!("{}\n", invite.text))
}

/// `user ls`
pub fn list(given: &Given) -> Outcome {
    let users = ask(given, async |mut admin| {
        Ok(admin.users(Empty {}).await?.into_inner().users)
    })?;
    show::either(
        given.has("json"),
        || json!({ "users": users.iter().map(document).collect::<Vec<_>>() }),
        || {
            let row = |u: &User| {
                vec![
                    u.name.clone(),
                    u.state.clone(),
                    u.roles.join(","),
                    moment(u.created, ""),
                ]
            };
            show::table(
                &["user", "state", "roles", "created"],
                &users.iter().map(row).collect::<Vec<_>>(),
            )
        },
    )
}

/// `user change`
pub fn change(given: &Given) -> Outcome {
    // Forgotten words take away nothing.
    match (given.has("role"), given.has("no-roles")) {
        (false, false) => {
            return Err(given
                .wrong("give the roles by `--role`, or take all away by `--no-roles`")
                .into());
        }
        (true, true) => {
            return Err(given
                .wrong("`--role` and `--no-roles` together: give one of them")
                .into());
        }
        _ => {}
    }
    let request = ChangeUserRequest {
        name: word(given),
        roles: given.values("role").map(str::to_owned).collect(),
    };
    let user = ask(given, async |mut admin| {
        Ok(admin.change_user(request).await?.into_inner())
    })?;
    show::either(
        given.has("json"),
        || document(&user),
        || match &user.roles[..] {
            [] => format!("{} has no roles, and comes in nowhere\n", user.name),
            roles => format!(
                "{} has the roles {} from the next login on; what is open ends now\n",
                user.name,
                roles.join(", ")
            ),
        },
    )
}

/// `user rm`
pub fn remove(given: &Given) -> Outcome {
    let name = word(given);
    ask(given, async |mut admin| {
        Ok(admin.remove_user(UserName { name }).await?.into_inner())
    })?;
    Ok(0)
}

fn document(u: &User) -> Value {
    json!({ "name": u.name, "state": u.state, "roles": u.roles, "created": u.created })
}
