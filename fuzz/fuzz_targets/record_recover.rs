//! Any bytes as what a crash left, whole blocks before them or not: never a panic, nothing behind the file's end counts, and
//! what is written next fits.
#![no_main]

use fleetgate_fuzz::recordings::sealed;
use fleetgate_record::reader::Reader;
use fleetgate_record::recover;
use fleetgate_record::tail::Entry;
use libfuzzer_sys::fuzz_target;

fn mend(file: &[u8], tail: &[u8]) {
    let Ok(Some(remains)) = recover::look(&mut &file[..]) else {
        return;
    };
    assert!(remains.position.length <= file.len() as u64);
    let mut writer = remains.resume(tail);
    if !remains.ended {
        let kept = usize::try_from(remains.position.length).expect("it is in memory");
        let mut mended = file[..kept].to_vec();
        mended.extend(writer.end(None, 0, b"{}"));
        let mut reader = Reader::new(&mended[..]).expect("it has its beginning");
        // Heads and hashes are right now; what a block holds may be anything.
        while let Ok(Some(_)) = reader.next_block() {}
    }
}

fuzz_target!(|data: &[u8]| {
    mend(data, data);
    let (mut file, chain, rest) = sealed(data);
    mend(&file, rest);
    for is_sealed in [false, true] {
        let entry = Entry {
            plain: rest.len(),
            from: 5,
            last: 9,
            is_sealed,
            ..Entry::default()
        };
        mend(&file, &entry.encode(&chain, rest));
    }
    file.extend_from_slice(rest);
    mend(&file, &[]);
});
