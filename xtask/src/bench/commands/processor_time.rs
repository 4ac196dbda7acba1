//! The processor time of one command: of its client, the master that the client uses, and all servers. The clients are run by a
//! shell's loop, one after the other, whose own processes are counted with them: a monitoring system starts processes too.

use super::{CHECK, CHECK_DIRECT, CONTROL_MASTER, NRPE, OURS_DIRECT, Rivals, TLS};
use crate::bench::{Bench, Subject};
use crate::shell::Result;
use std::process::{Command, Stdio};

const CASE: &str = "processor time of echo OK";
/// So many commands are one sample.
const BATCH: u32 = 50;
const BATCHES: usize = 10;
const NOTHING: &str = "/bin/true, without a server";

/// `LOOP DOOR COUNT COMMAND...`: enters the group and runs the command so often.
const LOOP: &str = r#"echo $$ > "$1"; n=$2; shift 2
while [ "$n" -gt 0 ]; do "$@" > /dev/null || exit 1; n=$((n - 1)); done"#;

/// Measures.
pub(super) fn measure(bench: &mut Bench, rivals: &Rivals) -> Result {
    // Ours are started anew by the first command of the loop, and so are in its group.
    rivals.cluster.end_master();
    rivals.master.enter(&rivals.clients)?;
    let subjects = [
        CHECK_DIRECT,
        CHECK,
        OURS_DIRECT,
        NRPE,
        TLS,
        CONTROL_MASTER,
        NOTHING,
    ];
    let subjects = subjects.map(|name| Subject::sampled(name, move || rivals.each(name)));
    bench.run(CASE, "ms", 1, BATCHES, subjects.into())
}

impl Rivals<'_> {
    /// Milliseconds that each command of a batch costs.
    fn each(&self, name: &str) -> Result<f64> {
        let one = match name {
            NOTHING => Command::new("/bin/true"),
            name => self.command(name),
        };
        let mut batch = Command::new("sh");
        batch.args(["-c", LOOP, "bench"]).arg(self.clients.door());
        batch
            .arg(BATCH.to_string())
            .arg(one.get_program())
            .args(one.get_args());
        for (name, value) in one.get_envs() {
            match value {
                Some(value) => batch.env(name, value),
                None => batch.env_remove(name),
            };
        }
        let before = self.used()?;
        let status = batch
            .stdin(Stdio::null())
            .status()
            .map_err(|e| format!("sh: {e}"))?;
        match status.success() {
            true => Ok((self.used()? - before) as f64 / 1e3 / f64::from(BATCH)),
            false => Err(format!("{one:?} fails in a loop")),
        }
    }

    /// Microseconds that everything has used, once it is at rest.
    pub(super) fn used(&self) -> Result<u64> {
        let groups = [
            &self.clients,
            &self.cluster.group,
            &self.node.group,
            &self.sshd.group,
            &self.plain.group,
            &self.tls.group,
        ];
        groups.iter().map(|group| group.cpu_at_rest()).sum()
    }
}
