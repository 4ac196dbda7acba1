//! Machines that are far apart, on one machine: places with a network, processes and mounts of their own, joined by
//! links that hold every packet for half of a round-trip time. For end-to-end tests, which count round trips, and
//! benchmarks, which take times; nothing that is shipped uses it.
//!
//! A link is two TUN devices and a thread that carries packets between them ([`relay`]), since netem is missing in many
//! kernels. What went over a link can be recorded ([`Recording`]) as a file that tcpdump reads, and the round trips
//! in it counted ([`Capture::round_trips`]).
//!
//! It changes nothing outside its own namespaces and leaves nothing behind: places and devices are without names and go
//! with this process, also when it is killed. It needs root.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]

mod capture;
mod error;
mod fleet;
mod pcap;
mod place;
mod process;
mod queue;
mod relay;
mod tap;
mod turns;

pub use capture::{Capture, Recording};
pub use error::{Error, Result};
pub use fleet::Fleet;
pub use process::Process;
pub use relay::Account;

use fleetgate_sys::tun;
use place::Place;
use relay::{Ends, Relay};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a server may take until it accepts.
const UP_WITHIN: Duration = Duration::from_secs(20);

/// Places and the links between them.
pub struct Lab {
    // Its thread ends before the places do, which would take the devices away from under it.
    relay: Relay,
    links: Vec<Link>,
    places: Vec<Place>,
}

struct Link {
    names: [&'static str; 2],
    addresses: [Ipv4Addr; 2],
    line: Arc<relay::Line>,
}

impl Lab {
    /// Makes the places that these links name, and the links with their round-trip times.
    pub fn new(links: &[(&'static str, &'static str, Duration)]) -> Result<Lab> {
        let mut names: Vec<&'static str> = Vec::new();
        for name in links.iter().flat_map(|(a, b, _)| [*a, *b]) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let places = names.into_iter().map(Place::new).collect::<Result<Vec<_>>>()?;
        let find = |name: &str| places.iter().find(|p| p.name() == name);
        let (mut made, mut ends) = (Vec::new(), Vec::new());
        for (number, (a, b, round_trip)) in (0u8..=u8::MAX).zip(links) {
            let addresses = [1, 2].map(|side| Ipv4Addr::new(10, 0, number, side));
            let (near, far) = (find(a).expect("made above"), find(b).expect("made above"));
            // A device is called after the place that it leads to.
            let devices = [
                near.device(b, addresses[0], addresses[1])?,
                far.device(a, addresses[1], addresses[0])?,
            ];
            let line = Arc::new(relay::Line::new(*round_trip));
            ends.push(Ends {
                devices,
                line: line.clone(),
            });
            made.push(Link {
                names: [a, b],
                addresses,
                line,
            });
        }
        for place in &places {
            let neighbours = made.iter().filter_map(|link| link.other(place.name()));
            place.knows(&neighbours.collect::<Vec<_>>())?;
        }
        Ok(Lab {
            relay: Relay::start(ends)?,
            links: made,
            places,
        })
    }

    /// Starts `command` as a process of `place`, its working directory `/`. All that it starts ends with the lab.
    pub fn start_in(&self, place: &str, command: &mut Command) -> Result<Process> {
        self.place(place)?.start(command)
    }

    /// Starts a server in `place`; what it says goes to the file `log`.
    pub fn serve(&self, place: &str, command: &mut Command, log: &Path) -> Result<Process> {
        let failed = |e: std::io::Error| Error::new(log.display(), e);
        let out = std::fs::File::create(log).map_err(failed)?;
        command
            .stdin(Stdio::null())
            .stdout(out.try_clone().map_err(failed)?)
            .stderr(out);
        self.start_in(place, command)
    }

    /// Waits until `server`, which was started in `place`, accepts connections on `port`.
    pub fn wait_until_it_accepts(&self, place: &str, server: &Process, port: u16) -> Result<()> {
        let failed = |why: String| Error::new(format!("a server on port {port} of {place}"), why);
        let until = Instant::now() + UP_WITHIN;
        let accepts = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
        while !self.inside(place, accepts)? {
            match server.has_ended() {
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(10)),
                Ok(None) => return Err(failed("it does not accept".to_owned())),
                Ok(Some(status)) => return Err(failed(status.to_string())),
                Err(e) => return Err(failed(e.to_string())),
            }
        }
        Ok(())
    }

    /// Does `work` on a thread that is in `place`'s network and mounts. The thread can start programs, which have the
    /// machine's process numbers, and threads.
    pub fn inside<T: Send>(&self, place: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.place(place)?.inside(work)
    }

    /// The address of `to`, for `from`. The name `to` leads there too: it stands in `from`'s `/etc/hosts`.
    pub fn address(&self, from: &str, to: &str) -> Result<Ipv4Addr> {
        let (link, side) = self.link(from, to)?;
        Ok(link.addresses[1 - side])
    }

    /// Sets a link's round-trip time, for packets that come from now on.
    pub fn set_round_trip(&self, from: &str, to: &str, round_trip: Duration) -> Result<()> {
        let (link, _) = self.link(from, to)?;
        link.line.set_round_trip(round_trip);
        Ok(())
    }

    /// A link's round-trip time as a program sees it: what connect(2) takes.
    pub fn measure(&self, from: &str, to: &str) -> Result<Duration> {
        let address = self.address(from, to)?;
        let failed = |e: std::io::Error| Error::new(format!("connecting from {from} to {to}"), e);
        let listener = self
            .inside(to, || TcpListener::bind((address, 0)))?
            .map_err(failed)?;
        let there = listener.local_addr().map_err(failed)?;
        let taken = self.inside(from, || {
            let start = Instant::now();
            TcpStream::connect(there).map(|_| start.elapsed())
        })?;
        taken.map_err(failed)
    }

    /// Begins to record the link from `asks` to `answers`, as it is seen at `asks`.
    pub fn record(&self, asks: &str, answers: &str) -> Result<Recording> {
        let (link, side) = self.link(asks, answers)?;
        Ok(Recording::begin(link.line.clone(), side, link.addresses[side]))
    }

    /// What the relay did so far; an error if it, or the kernel on the way to it, had to drop a packet.
    pub fn account(&self) -> Result<Account> {
        let account = self.relay.account();
        for place in &self.places {
            place.dropped_nothing()?;
        }
        account.dropped_nothing()
    }

    fn place(&self, name: &str) -> Result<&Place> {
        let found = self.places.iter().find(|p| p.name() == name);
        found.ok_or_else(|| Error::new(format!("the place {name:?}"), "the lab has no such place"))
    }

    /// The link between these two, and on which side of it `from` is.
    fn link(&self, from: &str, to: &str) -> Result<(&Link, usize)> {
        let side = |link: &Link| {
            [[from, to], [to, from]]
                .iter()
                .position(|names| *names == link.names)
        };
        let found = self.links.iter().find_map(|link| Some((link, side(link)?)));
        found.ok_or_else(|| {
            Error::new(
                format!("the link from {from} to {to}"),
                "the lab has no such link",
            )
        })
    }
}

impl Link {
    /// The place that this leads to from `name`, and its address.
    fn other(&self, name: &str) -> Option<(&'static str, Ipv4Addr)> {
        let here = self.names.iter().position(|n| *n == name)?;
        Some((self.names[1 - here], self.addresses[1 - here]))
    }
}

/// Why no lab can be made here, where that can be known beforehand.
pub fn unavailable() -> Option<String> {
    if fleetgate_sys::process::effective_uid() != 0 {
        return Some("places of its own need root".to_owned());
    }
    let probed = std::thread::spawn(|| {
        // In a network of its own: the name may be taken in the machine's.
        fleetgate_sys::net::separate().map_err(|e| format!("a network of its own: {e}"))?;
        tun::open("probe").map_err(|e| format!("/dev/net/tun: {e}"))
    });
    probed.join().expect("it does not panic").err()
}
