//! Any KEXINIT, in a packet that is well made, and any packets behind it, to a server and to a client.
#![no_main]

use fleetgate_fuzz::{plain_packet, pump, settings};
use fleetgate_ssh::Connection;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut bytes = b"SSH-2.0-fuzz\r\n".to_vec();
    let mut rest = data;
    while let Some((len, more)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_be_bytes(*len)).min(more.len());
        let (payload, more) = more.split_at(len);
        plain_packet(&mut bytes, payload);
        rest = more;
    }
    pump(&mut Connection::server(settings(), [1; 16]), &bytes, usize::MAX);
    pump(&mut Connection::client(settings()), &bytes, usize::MAX);
});
