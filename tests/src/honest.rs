//! An honest session beside an attack: it answers all the while.

use crate::by_hand::Client;
use crate::service::Service;
use crate::world::wait_until;
use fleetgate_ssh::event::ChannelId;

/// Bea's session.
pub struct Honest {
    client: Client,
    cat: ChannelId,
}

impl Honest {
    /// Logs in and starts what answers.
    pub fn new(service: &Service) -> Honest {
        // Whoever was there once has had the node make what it keeps.
        let mut first = Client::login("ada");
        assert_eq!(first.prints("echo first"), "first\n");
        first.leaves();
        wait_until("fronts go with their last connection", || {
            service.seats("front").is_empty()
        });
        let mut client = Client::login("bea");
        let cat = client.session();
        client.exec(cat, "exec cat");
        let mut honest = Honest { client, cat };
        honest.answers();
        honest
    }

    /// It does.
    pub fn answers(&mut self) {
        self.client.echoes(self.cat, "still here\n");
    }
}
