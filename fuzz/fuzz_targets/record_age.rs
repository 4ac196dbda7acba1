//! Any bytes as an age file, with a header that is right before them and without: never a panic, and what opens is not longer than
//! what was opened. What is sealed opens to the same.
#![no_main]

use fleetgate_record::age::{Identity, Keys, MAX_OVERHEAD, Recipients};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let identity = Identity::new([7; 32]);
    let recipients = Recipients::new(&[identity.recipient()]).expect("a sound key");
    let keys = Keys::new(vec![identity]);
    let mut plain = Vec::new();
    if keys.open(data, &mut plain).is_ok() {
        assert!(plain.len() < data.len());
    }
    let stanza = [&b"age-encryption.org/v1\n-> "[..], data].concat();
    let _ = keys.open(&stanza, &mut plain);
    // A whole file, with one byte changed: by the data's last two bytes, which one.
    let mut file = recipients.seal(data);
    assert!(file.len() <= data.len() + MAX_OVERHEAD + 16 * (data.len() >> 16));
    keys.open(&file, &mut plain).expect("it is whole");
    assert_eq!(plain, data);
    if let [.., low, high] = data {
        let at = usize::from(u16::from_le_bytes([*low, *high])) % file.len();
        file[at] ^= 1;
        assert!(keys.open(&file, &mut plain).is_err());
    }
});
