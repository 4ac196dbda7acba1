//! Where messages for the peer are put: the one face that channels and logins see of the transport. Whoever puts a
//! message here knows nothing of keys, padding or key exchanges.

/// The way out.
pub(crate) trait Outbox {
    /// One payload, written by `write` at the end of an empty buffer. It is sealed at once, or held back in plain while
    /// a key exchange is under way.
    fn packet(&mut self, write: impl FnOnce(&mut Vec<u8>));

    /// Bytes of channel data that may be added now: what the bound on unsent output leaves, 0 during a key exchange.
    fn room(&self) -> usize;

    /// One payload of channel data: `header`, whose last four bytes are the length and are filled in here, then what
    /// `fill` puts into the at most `max` bytes that it is given. Where `fill` fails or has nothing, nothing is sent.
    /// The bytes are sealed where `fill` put them. Nothing is asked of `fill` where there is no room.
    fn data<E>(
        &mut self,
        header: &[u8],
        max: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E>;
}
