//! Any text as a selector of nodes: never a panic, and what it says of itself means the same.
#![no_main]

use fleetgate_policy::cluster::{Labels, Name, Selector};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let labels = Labels::of([("env", "prod"), ("role", "db")]).expect("labels");
    let name = Name::parse("db-1").expect("a name");
    if let Ok(selector) = Selector::parse(text) {
        let again = Selector::parse(&selector.to_string()).expect("a selector");
        assert_eq!(again.matches(&name, &labels), selector.matches(&name, &labels));
        assert_eq!(again, selector);
    }
});
