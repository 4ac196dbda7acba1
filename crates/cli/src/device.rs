//! `fleetgate device enroll`.

use crate::admin::devices;
use crate::flags::{Arguments, Outcome};
use crate::output;
use fleetgate_client::profile::Home;
use fleetgate_client::{connect, device};

/// Makes this device known.
pub fn enroll(given: &Arguments) -> Outcome {
    let home = Home::find(given.value("home"))?;
    let name = given
        .value("name")
        .map_or_else(crate::cluster::machine_name, str::to_owned);
    let device = connect::run(device::enroll(&home, &name))?;
    output::either(
        given.has("json"),
        || devices::document(&device),
        || match device.approved {
            true => format!("{} is approved: log in again and it counts\n", device.name),
            false => format!(
                "{} is known as {}; an administrator approves it with `fleetgate device approve {}`\n",
                device.name, device.fingerprint, device.id
            ),
        },
    )
}
