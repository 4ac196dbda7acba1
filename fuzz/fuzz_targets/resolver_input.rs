//! What the resolver does with input before anybody else sees it: the check of a question that came from a front end
//! or helper, and the reading of a service's file.
#![no_main]

use fleetgate_wire::names::{About, MAX_IDS, MAX_NAME, Question};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(question) = fleetgate_wire::decode::<Question>(data)
        && fleetgate_resolver::check_question(&question.about).is_ok()
    {
        match question.about {
            About::User { name } | About::Group { name } | About::Context { user: name } => {
                let name = name.to_bytes();
                assert!(!name.is_empty() && name.len() <= MAX_NAME);
                assert!(!name.iter().any(|b| b":/\n".contains(b)));
            }
            About::Host { name, .. } => assert!(!name.is_empty() && name.as_bytes().len() <= MAX_NAME),
            About::Names { uids, gids } => assert!(uids.len() + gids.len() <= MAX_IDS),
            About::UserById { .. } => {}
        }
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let named = fleetgate_resolver::parse_service(text);
        assert!(named.len() <= text.lines().count());
    }
});
