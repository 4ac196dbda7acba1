//! A front: the connections of one login, after it.

use crate::seat::{Control, Ended, Log};
use fleetgate_sys::epoll::{Epoll, Event};
use fleetgate_wire::node::front::{FromFront, ToFront};

/// Serves until the monitor ends it.
pub(crate) fn serve(mut control: Control, epoll: Epoll, _log: Log) -> Ended {
    let mut run = || -> Result<std::convert::Infallible, Ended> {
        control.watch(&epoll, u64::MAX)?;
        control.say(&FromFront::Ready)?;
        let mut events = [Event::EMPTY; 8];
        loop {
            epoll.wait(&mut events, None).map_err(Ended::at("waiting"))?;
            control.flush()?;
            while control.receive::<ToFront>()?.is_some() {}
        }
    };
    match run() {
        Ok(never) => match never {},
        Err(ended) => ended,
    }
}
