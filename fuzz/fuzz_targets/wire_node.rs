//! Any bytes as each of the frames between the node's processes, and between a command and the master. The monitor reads what a taken-over lobby, front or
//! tunnel says: never a panic, and what is understood has one form.
#![no_main]

use fleetgate_wire::master::{FromMaster, ToMaster};
use fleetgate_wire::node::{front, lobby, recorder, starter, tunnel, watch};
use fleetgate_wire::{Decode, Encode, decode, encode};
use libfuzzer_sys::fuzz_target;

fn one_form<T: Decode + Encode>(data: &[u8]) {
    if let Ok(frame) = decode::<T>(data) {
        assert_eq!(encode(&frame), data, "a frame has one form");
    }
}

fuzz_target!(|data: &[u8]| {
    one_form::<lobby::FromLobby>(data);
    one_form::<lobby::ToLobby>(data);
    one_form::<front::FromFront>(data);
    one_form::<front::ToFront>(data);
    one_form::<tunnel::FromTunnel>(data);
    one_form::<tunnel::ToTunnel>(data);
    one_form::<watch::ToWatcher>(data);
    one_form::<watch::FromWatcher>(data);
    one_form::<recorder::ToRecorder>(data);
    one_form::<recorder::FromRecorder>(data);
    one_form::<starter::FromMonitor>(data);
    one_form::<starter::ToMonitor>(data);
    one_form::<FromMaster>(data);
    one_form::<ToMaster>(data);
});
