//! A container that a benchmark starts, by Debian's runc or crun: a root of busybox, and `runc spec`'s configuration.

use crate::bench::rival;
use crate::shell::{Result, read_text, run, target};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where a container is started.
#[derive(Clone, Copy, PartialEq)]
pub enum Place {
    /// On this machine.
    Here,
    /// The same with the cgroups of version 2 alone, which crun wants where a machine has both.
    Unified,
    /// Where this process is, with its mounts and cgroups.
    Beside(u32),
}

/// A running container, which ends with this value.
pub struct Container {
    runtime: PathBuf,
    place: Place,
    directory: PathBuf,
    /// Its id.
    pub name: String,
    /// Its first process.
    pub pid: i32,
}

impl Container {
    /// Starts one, with `truth` as its /bin/bench-true.
    pub fn start(runtime: &Path, name: &str, truth: &Path, place: Place) -> Result<Container> {
        let directory = target().join("bench/containers").join(name);
        bundle(&directory, truth, &["sleep", "3600"])?;
        let mut container = Container {
            runtime: runtime.to_owned(),
            place,
            directory: directory.clone(),
            name: name.to_owned(),
            pid: 0,
        };
        let mut command = match place {
            Place::Here | Place::Beside(_) => container.runtime(),
            Place::Unified => {
                let alone = "mount --make-rprivate / && mount -t cgroup2 none /sys/fs/cgroup && exec \"$@\"";
                let mut command = Command::new("unshare");
                command
                    .args(["--mount", "sh", "-c", alone, "unified"])
                    .arg(runtime);
                command.arg("--cgroup-manager=disabled");
                command
            }
        };
        let pid = directory.join("pid");
        command.args(["--root", &container.root(), "run", "--detach", "--bundle"]);
        command.arg(&directory).arg("--pid-file").arg(&pid).arg(name);
        run(command.stdin(Stdio::null()).stdout(Stdio::null()))?;
        container.pid = read_text(&pid)?
            .trim()
            .parse()
            .map_err(|_| "no number of a process")?;
        Ok(container)
    }

    /// Where its runtime keeps it: beside a node, where that looks.
    pub fn root(&self) -> String {
        match self.place {
            Place::Beside(_) => "/run/runc".to_owned(),
            _ => self.directory.join("state").display().to_string(),
        }
    }

    /// Its runtime, where it was started.
    pub fn runtime(&self) -> Command {
        match self.place {
            Place::Beside(process) => {
                let mut command = Command::new("nsenter");
                command.args(["--mount", "--cgroup", "--target", &process.to_string(), "--"]);
                command.arg(&self.runtime);
                command
            }
            _ => Command::new(&self.runtime),
        }
    }
}

/// Makes a bundle that runs `args` anew, with `truth` as its /bin/bench-true.
pub fn bundle(directory: &Path, truth: &Path, args: &[&str]) -> Result {
    let failed = |e: std::io::Error| format!("{}: {e}", directory.display());
    let _ = std::fs::remove_dir_all(directory);
    let bin = directory.join("rootfs/bin");
    for name in ["bin", "proc", "dev", "sys"] {
        std::fs::create_dir_all(directory.join("rootfs").join(name)).map_err(failed)?;
    }
    std::fs::copy(rival("busybox", "busybox-static")?, bin.join("busybox")).map_err(failed)?;
    for tool in ["sh", "sleep", "true", "cat"] {
        symlink("busybox", bin.join(tool)).map_err(failed)?;
    }
    std::fs::copy(truth, bin.join("bench-true")).map_err(failed)?;
    run(Command::new("runc").arg("spec").current_dir(directory))?;
    let file = directory.join("config.json");
    let mut config: serde_json::Value =
        serde_json::from_str(&read_text(&file)?).map_err(|e| e.to_string())?;
    config["process"]["terminal"] = false.into();
    config["process"]["args"] = args.into();
    // Debian's release lists ambient capabilities that cannot be raised, and later ones warn of that at each run.
    if let Some(capabilities) = config["process"]["capabilities"].as_object_mut() {
        capabilities.remove("ambient");
    }
    std::fs::write(&file, config.to_string()).map_err(failed)
}

impl Drop for Container {
    fn drop(&mut self) {
        let mut delete = self.runtime();
        delete.args(["--root", &self.root(), "delete", "--force", &self.name]);
        let _ = delete.stderr(Stdio::null()).status();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
