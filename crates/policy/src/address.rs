//! Source addresses: networks, and the lists of `from=`, `source-address` and `user@host`. Host names never fit:
//! a login makes no DNS look-up, and whoever owns a name's reverse zone may not decide who comes in.

use crate::Invalid;
use crate::pattern;
use std::fmt;
use std::net::IpAddr;

/// The longest text of a list of addresses.
pub const MAX_LIST: usize = 4096;

/// An address with the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// `192.0.2.0/24`, `2001:db8::/32`, or one address. Bits beyond the prefix are refused, as sshd does: such a
    /// network is mostly a typing error.
    pub fn parse(text: &str) -> Result<Network, Invalid> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address
            .parse()
            .map_err(|_| format!("{text:?} is no network address"))?;
        let width = width(address);
        let bits = match bits {
            None => width,
            Some(digits) => digits
                .parse()
                .ok()
                .filter(|&b: &u8| b <= width && digits.bytes().all(|c| c.is_ascii_digit()))
                .ok_or_else(|| format!("{text:?} has no prefix length from 0 to {width}"))?,
        };
        if masked(number(address), width, bits) != number(address) {
            return Err(Invalid(format!("{text:?} has bits beyond its prefix length")));
        }
        // Visitors count as IPv4 when they come over an IPv6 socket, so such a network has to as well.
        Ok(match address.to_canonical() {
            v4 @ IpAddr::V4(_) if address.is_ipv6() && bits >= 96 => Network {
                address: v4,
                bits: bits - 96,
            },
            _ => Network { address, bits },
        })
    }

    /// The network of so many bits that `address` is in.
    pub fn around(address: IpAddr, bits: u8) -> Network {
        let bits = bits.min(width(address));
        let first = masked(number(address), width(address), bits);
        let address = match address {
            IpAddr::V4(_) => IpAddr::V4(u32::try_from(first).unwrap_or_default().into()),
            IpAddr::V6(_) => IpAddr::V6(first.into()),
        };
        Network { address, bits }
    }

    /// As people write it: one address without its length.
    pub fn short(&self) -> String {
        match self.bits == width(self.address) {
            true => self.address.to_string(),
            false => self.to_string(),
        }
    }

    /// Whether `address` is in it. An IPv4 address that came over an IPv6 socket counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let own = self.address;
        width(address) == width(own) && masked(number(address), width(own), self.bits) == number(own)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// A certificate's `source-address`: networks only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Networks(Vec<Network>);

impl Networks {
    /// Separated by commas.
    pub fn parse(list: &str) -> Result<Networks, Invalid> {
        if list.len() > MAX_LIST {
            return Err(Invalid(format!("a list of addresses may have {MAX_LIST} bytes")));
        }
        list.split(',')
            .map(Network::parse)
            .collect::<Result<_, _>>()
            .map(Networks)
    }

    /// Whether one of them has it.
    pub fn contain(&self, address: IpAddr) -> bool {
        self.0.iter().any(|n| n.contains(address))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Network(Network),
    /// `10.1.*`: compared with the address as text.
    Pattern(String),
}

/// `from=` of authorized_keys, and what stands behind `@` in a user pattern: networks and patterns, some negated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources(Vec<(bool, Source)>);

impl Sources {
    /// Separated by commas.
    pub fn parse(list: &str) -> Result<Sources, Invalid> {
        if list.len() > MAX_LIST {
            return Err(Invalid(format!("a list of addresses may have {MAX_LIST} bytes")));
        }
        let one = |entry: &str| {
            let (negated, text) = match entry.strip_prefix('!') {
                Some(rest) => (true, rest),
                None => (false, entry),
            };
            if text.is_empty() {
                return Err("it has an empty entry".into());
            }
            let source = match Network::parse(text) {
                Ok(network) => Source::Network(network),
                Err(reason) if text.contains('/') => return Err(reason),
                Err(_) => Source::Pattern(text.to_ascii_lowercase()),
            };
            Ok((negated, source))
        };
        list.split(',').map(one).collect::<Result<_, _>>().map(Sources)
    }

    /// Whether one of them fits the address and no negated one does.
    pub fn fit(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let text = address.to_string();
        let mut found = false;
        for (negated, source) in &self.0 {
            let fits = match source {
                Source::Network(network) => network.contains(address),
                Source::Pattern(pattern) => pattern::fits(pattern.as_bytes(), text.as_bytes()),
            };
            if fits && *negated {
                return false;
            }
            found |= fits;
        }
        found
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u32::from(a).into(),
        IpAddr::V6(a) => a.into(),
    }
}

fn masked(number: u128, width: u8, bits: u8) -> u128 {
    let low = u32::from(width - bits);
    number
        .checked_shr(low)
        .and_then(|n| n.checked_shl(low))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn networks_contain_what_they_say() {
        for (network, address, want) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("::ffff:10.0.0.0/104", "10.255.0.1", true),
            ("::ffff:10.0.0.0/104", "11.0.0.1", false),
            ("::ffff:10.0.0.1", "::ffff:10.0.0.1", true),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "::1", true),
            ("::/0", "1.2.3.4", false),
            ("2001:db8::/33", "2001:db8:7fff::1", true),
            ("2001:db8::/33", "2001:db8:8000::1", false),
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1/32", "192.0.2.2", false),
        ] {
            assert_eq!(
                Network::parse(network).unwrap().contains(ip(address)),
                want,
                "{network} {address}"
            );
        }
    }

    #[test]
    fn bad_networks_are_refused() {
        for bad in [
            "",
            "/",
            "10.0.0.0/33",
            "10.0.0.1/8",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10/8",
            "host",
            "10.0.0.0/8/8",
            "010.0.0.1",
            "10.0.0.0/-1",
            "2001:db8::1/32",
        ] {
            assert!(Network::parse(bad).is_err(), "{bad}");
        }
        assert!(Networks::parse("10.0.0.0/8,").is_err());
        assert!(Networks::parse("10.*").is_err());
        assert!(Networks::parse(&"1.1.1.1,".repeat(600)).is_err());
        let both = Networks::parse("10.0.0.0/8,::1").unwrap();
        assert!(both.contain(ip("::1")) && both.contain(ip("10.1.1.1")) && !both.contain(ip("9.1.1.1")));
    }

    #[test]
    fn sources_fit_as_in_sshd() {
        for (list, address, want) in [
            ("10.*", "10.1.2.3", true),
            ("10.*", "110.1.2.3", false),
            ("10.0.0.0/8,!10.1.0.0/16", "10.2.0.1", true),
            ("10.0.0.0/8,!10.1.0.0/16", "10.1.0.1", false),
            ("!10.1.0.0/16", "10.2.0.1", false),
            ("*", "2001:db8::1", true),
            ("*,!2001:DB8::*", "2001:db8::1", false),
            ("2001:DB8:0::1", "2001:db8::1", true),
            ("host.example.com", "192.0.2.1", false),
            ("*.example.com", "192.0.2.1", false),
            ("192.0.2.?", "192.0.2.1", true),
            ("192.0.2.?", "192.0.2.11", false),
        ] {
            assert_eq!(
                Sources::parse(list).unwrap().fit(ip(address)),
                want,
                "{list} {address}"
            );
        }
        for bad in ["", "10.0.0.1/8", "a,,b", "!", "10.0.0.0/64"] {
            assert!(Sources::parse(bad).is_err(), "{bad}");
        }
    }
}
