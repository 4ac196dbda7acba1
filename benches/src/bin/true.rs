//! A static program that ends at once: what a launch cannot be faster than. `bench-true ids UID GID` first does
//! what the session helper does for its program (setsid, groups, ids), for the direct way to be measured fairly;
//! with a PATH after that it executes PATH: what any helper costs that does nothing at all.
#![no_std]
#![no_main]

use fleetgate_sys::program::Args;
use fleetgate_sys::spawn::Strings;
use fleetgate_sys::{credentials, exe, exec, file};

fn run(args: Args) -> i32 {
    let number = |index| -> Option<u32> { args.get(index)?.to_str().ok()?.parse().ok() };
    if args.get(1).is_none_or(|word| word != c"ids") {
        return 0;
    }
    let (Some(uid), Some(gid)) = (number(2), number(3)) else {
        return 2;
    };
    let done = exec::new_session()
        .and_then(|()| credentials::set_groups(&[gid]))
        .and_then(|()| credentials::set_group_ids(gid))
        .and_then(|()| credentials::set_user_ids(uid));
    if let (true, Some(path)) = (done.is_ok(), args.get(4)) {
        if let Ok(program) = exe::open_read(file::CWD, path) {
            exe::execute(&program, &Strings::new([path]), &Strings::new([]));
        }
        return 3;
    }
    done.is_err().into()
}

fleetgate_sys::program_main!(run);
