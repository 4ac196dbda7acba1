//! Where messages for the peer are put: the one face that channels and logins see of the transport. Whoever puts a
//! message here knows nothing of keys, padding or key exchanges.

/// The most packets that one [`Outbox::data`] fills.
pub(crate) const PARTS_MAX: usize = 4;

/// The way out.
pub(crate) trait Outbox {
    /// One payload, written by `write` at the end of an empty buffer. It is sealed at once, or held back in plain while
    /// a key exchange is under way.
    fn packet(&mut self, write: impl FnOnce(&mut Vec<u8>));

    /// Bytes of channel data that may be added now: what the bound on unsent output leaves, 0 during a key exchange.
    fn room(&self) -> usize;

    /// Payloads of channel data, up to [`PARTS_MAX`]: each `header`, whose last four bytes are the length and are filled
    /// in here, then at most `part` bytes. `fill` puts `max` bytes at most into their places, from the first on, and
    /// says how many. Where it fails or has nothing, nothing is sent. The bytes are sealed where `fill` put them.
    /// Nothing is asked of it where there is no room.
    fn data<E>(
        &mut self,
        header: &[u8],
        part: usize,
        max: usize,
        fill: impl FnOnce(&mut [&mut [u8]]) -> Result<usize, E>,
    ) -> Result<usize, E>;
}
