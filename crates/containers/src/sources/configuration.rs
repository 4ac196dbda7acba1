//! What a container's configuration says of who it is.

use super::{MAX_CONTAINERS, strings};
use crate::find::{ContainerRecord, Runtime};
use crate::on_disk::{document, is_believed_at};
use crate::remembered::Remembered;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The same of a configuration, for who looks for a container.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Annotated {
    annotations: Value,
    mounts: Value,
}

/// What a configuration says of who a container is.
struct Described {
    labels: BTreeMap<String, String>,
    /// Where its `/etc/hostname` is kept: Docker keeps all of a container there, wherever its containers are.
    hostname: Option<PathBuf>,
}

/// The directory that `/etc/hostname` is mounted from.
fn place_of_hostname(mounts: &Value) -> Option<PathBuf> {
    let mut all = mounts.as_array().into_iter().flatten();
    let mount = all.find(|mount| mount["destination"] == "/etc/hostname")?;
    Some(Path::new(mount["source"].as_str()?).parent()?.to_owned())
}

impl ContainerRecord {
    /// The annotations of its configuration are labels.
    pub(super) fn annotate(&mut self) {
        static DESCRIBED: Remembered = Remembered::new(2 * MAX_CONTAINERS);
        let Some(config) = self.config.as_deref() else {
            return;
        };
        // What others than root may change gives it neither a name nor labels. What was read when nobody else could is believed
        // while the file is the same, whoever may change it now.
        let described = DESCRIBED.of(config, || {
            let believed = Some(config).filter(|config| is_believed_at(config));
            let read = believed.and_then(document::<Annotated>).ok_or(())?;
            Ok::<_, ()>(Described {
                labels: strings(&read.annotations),
                hostname: place_of_hostname(&read.mounts),
            })
        });
        if let Ok(described) = described {
            self.labels.extend(described.labels.clone());
            let place = described.hostname.as_ref();
            self.docker = place.filter(|place| place.ends_with(&self.id)).cloned();
            // Wherever Podman's storage is, its own containers say that they are.
            if self
                .labels
                .get("io.container.manager")
                .is_some_and(|manager| manager == "libpod")
            {
                self.runtime = Runtime::Podman;
            }
            // Others keep more labels elsewhere.
            self.labels_are_all =
                self.namespace.is_none() && matches!(self.runtime, Runtime::Runc | Runtime::Crun);
        }
    }
}
