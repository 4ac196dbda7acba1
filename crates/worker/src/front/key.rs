//! What the loop's events are named by: 64 bits that say whose and which.

use super::pump::Which;

/// Who an event is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// The monitor.
    Control,
    /// A connection's socket; the number is its place.
    Socket(u32),
    /// A channel's descriptor.
    Channel(u32, Which, u32),
    /// A listener of a connection, by its own number.
    Listener(u32, u32),
}

/// Places are below this, so that they fit beside the rest.
pub(super) const MAX_PLACES: usize = 1 << 24;

impl Key {
    pub(super) fn to_number(self) -> u64 {
        let (place, what, id) = match self {
            Key::Control => return u64::MAX,
            Key::Socket(place) => (place, 0, 0),
            Key::Channel(place, Which::Input, id) => (place, 1, id),
            Key::Channel(place, Which::Output, id) => (place, 2, id),
            Key::Channel(place, Which::Error, id) => (place, 3, id),
            Key::Listener(place, id) => (place, 4, id),
            Key::Channel(place, Which::Recording, id) => (place, 5, id),
            Key::Channel(place, Which::Views, id) => (place, 6, id),
        };
        u64::from(place) << 40 | what << 32 | u64::from(id)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a number is made of 24 and 32 bits, taken apart again"
    )]
    pub(super) fn from_number(number: u64) -> Key {
        let (place, id) = ((number >> 40) as u32, number as u32);
        match number >> 32 & 0xff {
            0 => Key::Socket(place),
            1 => Key::Channel(place, Which::Input, id),
            2 => Key::Channel(place, Which::Output, id),
            3 => Key::Channel(place, Which::Error, id),
            4 => Key::Listener(place, id),
            5 => Key::Channel(place, Which::Recording, id),
            6 => Key::Channel(place, Which::Views, id),
            _ => Key::Control,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_comes_back() {
        let last = MAX_PLACES as u32 - 1;
        for key in [
            Key::Control,
            Key::Socket(0),
            Key::Socket(last),
            Key::Channel(7, Which::Input, u32::MAX),
            Key::Channel(last, Which::Output, 1 << 31),
            Key::Channel(0, Which::Error, 0),
            Key::Channel(3, Which::Recording, 8),
            Key::Channel(4, Which::Views, 8),
            Key::Listener(last, 9),
        ] {
            assert_eq!(Key::from_number(key.to_number()), key);
        }
    }
}
