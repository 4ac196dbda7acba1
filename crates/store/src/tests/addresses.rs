//! An address chooses the backend: by its scheme, or the first one for a path alone.

use super::{Home, block, key, value};
use crate::{Address, Existing};

#[test]
fn an_address_names_its_backend_and_an_unknown_one_is_refused() {
    for (text, read) in [
        ("sqlite:/var/lib/state", "sqlite:/var/lib/state"),
        ("/var/lib/state", "sqlite:/var/lib/state"),
        ("./a:b", "sqlite:./a:b"),
        ("/a:b", "sqlite:/a:b"),
        (
            "sqlite:",
            "`sqlite:` names no place; write `sqlite:PATH`, or a path alone",
        ),
        ("", "`` names no place; write `sqlite:PATH`, or a path alone"),
        (
            "etcd:/x",
            "`etcd:/x` names a kind of store that this program does not know; write `sqlite:PATH`, or a path alone",
        ),
    ] {
        let found = match Address::parse(text) {
            Ok(address) => format!("{address:?}"),
            Err(e) => e.to_string().replacen("the state's address ", "", 1),
        };
        assert_eq!(found, read);
    }
}

#[test]
fn a_store_is_opened_copied_and_brought_back_by_its_address() {
    let home = Home::new();
    let at = Address::parse(&format!("sqlite:{}", home.store().display())).expect("an address");
    assert_eq!(at.directory(), Some(&*home.store()));
    assert!(!at.exists() && at.look().is_err());
    let store = at.open().expect("it opens");
    block(store.put(key("/a"), value("1"), None)).expect("put");
    let copy = home.path().join("copy");
    at.backup(&copy, Existing::Keep).expect("copied");
    drop(store);
    assert!(at.exists() && at.look().is_ok());
    let other = Address::in_directory(&home.path().join("other"));
    other.restore(&copy, Existing::Keep).expect("restored");
    let store = other.open().expect("it opens");
    let entry = block(store.get(&key("/a"))).expect("read");
    assert_eq!(entry.expect("it is there").value, value("1"));
}
