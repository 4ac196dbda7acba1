//! `fleetgate user …`.

use super::{Admin, call, lifetime, moment, removed, word};
use crate::flags::{Arguments, Outcome};
use crate::output::{self, print};
use fleetgate_proto::v1::{AddUserRequest, ChangeUserRequest, Empty, Invite, User, UserName};
use serde_json::{Value, json};

/// `user add`
pub fn add(given: &Arguments) -> Outcome {
    let request = AddUserRequest {
        name: word(given),
        roles: given.values("role").map(str::to_owned).collect(),
        invite_lifetime: lifetime(given),
    };
    let has_none = request.roles.is_empty();
    let invite = call(given, Admin::add_user, request)?;
    if has_none {
        eprintln!(
            "{0} has no roles, and comes in nowhere: `fleetgate user change {0} --role ROLE` gives some.",
            invite.user
        );
    }
    hand_over(given, &invite)
}

/// `user reset`
pub fn reset(given: &Arguments) -> Outcome {
    let invite = call(given, Admin::reset_user, UserName { name: word(given) })?;
    hand_over(given, &invite)
}

/// The invite alone goes to standard output, so that a script can keep it.
fn hand_over(given: &Arguments, invite: &Invite) -> Outcome {
    if given.has("json") {
        return output::json(
            &json!({ "user": invite.user, "invite": invite.text, "expires": invite.expires }),
        );
    }
    eprintln!(
        "The invite of {}, good once and {}; `fleetgate login --proxy HOST:PORT --invite-file -` asks for it:",
        invite.user,
        moment(invite.expires, "for ever").replace("in ", "for ")
    );
    print(&format!("{}\n", invite.text)).inspect_err(|_| {
        eprintln!(
            "The invite could not be written, and is shown nowhere else: `fleetgate user reset {}` makes another.",
            invite.user
        );
    })
}

/// `user ls`
pub fn list(given: &Arguments) -> Outcome {
    let users = call(given, Admin::users, Empty {})?.users;
    let headings = ["user", "state", "roles", "created"];
    output::list(given.has("json"), "users", &users, document, headings, |u| {
        [
            u.name.clone(),
            u.state.clone(),
            u.roles.join(","),
            moment(u.created, ""),
        ]
    })
}

/// `user change`
pub fn change(given: &Arguments) -> Outcome {
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
    let user = call(given, Admin::change_user, request)?;
    output::either(
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
pub fn remove(given: &Arguments) -> Outcome {
    let name = word(given);
    call(given, Admin::remove_user, UserName { name: name.clone() })?;
    removed(given, &name)
}

fn document(u: &User) -> Value {
    json!({ "name": u.name, "state": u.state, "roles": u.roles, "created": u.created })
}
