//! What is measured: six constellations of user, target and proxy, and what Teleport published of them
//! (goteleport.com, "How we improved SSH connection times by up to 40%", August 2023: the whole of `tsh ssh host whoami`,
//! version 12 over SSH to the proxy, version 13 over gRPC). Nothing here measures.

use std::time::Duration;

/// One constellation.
pub struct Row {
    /// Where each is: user, target, proxy.
    pub regions: [&'static str; 3],
    /// Seconds, as published.
    pub v12: f64,
    /// Seconds, as published.
    pub v13: f64,
    /// The promise about the latter.
    pub of_v13: &'static str,
    /// The promise about OpenSSH's ProxyJump, measured beside ours.
    pub of_jump: &'static str,
}

const EAST: &str = "us-east-1";
const WEST: &str = "us-west-2";
const ASIA: &str = "ap-southeast-1";

/// The published table, in its order.
pub const ROWS: [Row; 6] = [
    Row {
        regions: [EAST, WEST, WEST],
        v12: 2.630,
        v13: 1.710,
        of_v13: "cold fleetgate ssh, us-east-1/us-west-2/us-west-2, of v13 as published",
        of_jump: "cold fleetgate ssh, us-east-1/us-west-2/us-west-2, of ProxyJump",
    },
    Row {
        regions: [EAST, ASIA, WEST],
        v12: 4.990,
        v13: 3.670,
        of_v13: "cold fleetgate ssh, us-east-1/ap-southeast-1/us-west-2, of v13 as published",
        of_jump: "cold fleetgate ssh, us-east-1/ap-southeast-1/us-west-2, of ProxyJump",
    },
    Row {
        regions: [WEST, WEST, WEST],
        v12: 0.698,
        v13: 0.562,
        of_v13: "cold fleetgate ssh, us-west-2/us-west-2/us-west-2, of v13 as published",
        of_jump: "cold fleetgate ssh, us-west-2/us-west-2/us-west-2, of ProxyJump",
    },
    Row {
        regions: [WEST, ASIA, WEST],
        v12: 3.600,
        v13: 2.640,
        of_v13: "cold fleetgate ssh, us-west-2/ap-southeast-1/us-west-2, of v13 as published",
        of_jump: "cold fleetgate ssh, us-west-2/ap-southeast-1/us-west-2, of ProxyJump",
    },
    Row {
        regions: [ASIA, WEST, WEST],
        v12: 4.040,
        v13: 2.640,
        of_v13: "cold fleetgate ssh, ap-southeast-1/us-west-2/us-west-2, of v13 as published",
        of_jump: "cold fleetgate ssh, ap-southeast-1/us-west-2/us-west-2, of ProxyJump",
    },
    Row {
        regions: [ASIA, ASIA, WEST],
        v12: 6.610,
        v13: 4.700,
        of_v13: "cold fleetgate ssh, ap-southeast-1/ap-southeast-1/us-west-2, of v13 as published",
        of_jump: "cold fleetgate ssh, ap-southeast-1/ap-southeast-1/us-west-2, of ProxyJump",
    },
];

/// The row in which the proxy is far from the user and near to the target, by a region's width: what crosses the first
/// leg is counted there, since nothing that crosses the second is under way at the same time.
pub const FAR_PROXY: usize = 4;
/// The row in which it is near to the user and far from the target.
pub const FAR_TARGET: usize = 3;

impl Row {
    /// What the row is called.
    pub fn name(&self) -> String {
        self.regions.join("/")
    }

    /// The legs with their round-trip times: user to proxy, proxy to target, user to target.
    pub fn legs(&self) -> [(&'static str, &'static str, Duration); 3] {
        let [user, target, proxy] = self.regions;
        [
            ("user", "proxy", round_trip(user, proxy)),
            ("proxy", "target", round_trip(proxy, target)),
            ("user", "target", round_trip(user, target)),
        ]
    }
}

/// The round-trip time between two regions.
fn round_trip(a: &str, b: &str) -> Duration {
    let between = |x, y| [(a, b), (b, a)].contains(&(x, y));
    Duration::from_millis(match () {
        _ if a == b => 1,
        _ if between(EAST, WEST) => 65,
        _ if between(WEST, ASIA) => 170,
        _ => 220,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_what_was_published() {
        let legs = |row: &Row| row.legs().map(|(_, _, rtt)| rtt.as_millis());
        let expected = [
            [65, 1, 65],
            [65, 170, 220],
            [1, 1, 1],
            [1, 170, 170],
            [170, 1, 170],
            [170, 170, 1],
        ];
        assert_eq!(ROWS.each_ref().map(legs), expected);
        assert_eq!(legs(&ROWS[FAR_PROXY])[..2], [170, 1]);
        assert_eq!(legs(&ROWS[FAR_TARGET])[..2], [1, 170]);
        for row in &ROWS {
            for promise in [row.of_v13, row.of_jump] {
                assert!(promise.contains(&format!(", {},", row.name())), "{promise}");
            }
        }
    }
}
