//! The sealed images that a server's processes hold, and what each costs the machine, once.
//!
//! Proportional set sizes leave most of an image out: a process at rest has its pages unmapped, and an anonymous file's
//! pages stay in memory all the same. So an image is counted by its file, and mappings of it are taken out of what is
//! counted by process. Of an anonymous file all that the kernel has allocated counts, of an installed file what the
//! page cache has of it. Nothing here decides which processes are looked at.

use crate::bench::rival;
use crate::shell::{Result, output, read_text};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where packages install images.
pub const INSTALLED: &str = "/usr/lib/fleetgate";
/// How the kernel names anonymous files.
const ANONYMOUS: &str = "/memfd:";

/// Where an image's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// In an anonymous file.
    Memory,
    /// In an installed file.
    Installed,
}

/// A file, as the kernel tells it from others: `(major, minor, inode)`.
type FileId = (u64, u64, u64);

/// One image.
struct Image {
    name: String,
    rung: Rung,
    kilobytes: f64,
}

/// All images that some processes hold.
#[derive(Default)]
pub struct Images(BTreeMap<FileId, Image>);

impl Images {
    /// Those that are open in `processes`, or executed by them.
    pub fn of(processes: &BTreeSet<u32>) -> Result<Images> {
        let mut found = Images::default();
        for process in processes {
            let proc = PathBuf::from(format!("/proc/{process}"));
            // A process may end, and close a file, while it is looked at.
            let entries = std::fs::read_dir(proc.join("fd")).into_iter().flatten().flatten();
            for path in entries.map(|e| e.path()).chain([proc.join("exe")]) {
                found.add(&path)?;
            }
        }
        Ok(found)
    }

    fn add(&mut self, path: &Path) -> Result {
        let Ok(target) = std::fs::read_link(path) else {
            return Ok(());
        };
        let (Some((rung, name)), Ok(file)) = (named(&target.to_string_lossy()), std::fs::metadata(path))
        else {
            return Ok(());
        };
        let device = file.dev();
        let id = (major(device), minor(device), file.ino());
        if let Entry::Vacant(place) = self.0.entry(id) {
            let kilobytes = match rung {
                // stat(2) counts blocks of 512 bytes, whatever the file system's are.
                Rung::Memory => file.blocks() as f64 / 2.0,
                Rung::Installed => cached(path)? / 1024.0,
            };
            place.insert(Image {
                name,
                rung,
                kilobytes,
            });
        }
        Ok(())
    }

    /// What all of them cost.
    pub fn kilobytes(&self) -> f64 {
        self.0.values().map(|image| image.kilobytes).sum()
    }

    /// An error if these are not the images of `names`, each once and on `rung`.
    pub fn are(&self, names: &[&str], rung: Rung) -> Result {
        let mut found: Vec<(&str, Rung)> = self.0.values().map(|i| (i.name.as_str(), i.rung)).collect();
        found.sort_unstable_by_key(|(name, _)| *name);
        let wanted: Vec<(&str, Rung)> = names.iter().map(|name| (*name, rung)).collect();
        match found == wanted {
            true => Ok(()),
            false => Err(format!("the images are {found:?}, and should be {wanted:?}")),
        }
    }

    /// Kilobytes (PSS) of a process without what its mappings have of these files. A page that it has changed is its own.
    pub fn without(&self, proc: &Path) -> Result<f64> {
        // One that has ended meanwhile has none, and neither has a zombie.
        let text = std::fs::read_to_string(proc.join("smaps_rollup")).unwrap_or_default();
        if text.is_empty() {
            return Ok(0.0);
        }
        let all =
            field(&text, "Pss:").ok_or_else(|| format!("{}/smaps_rollup has no Pss", proc.display()))?;
        if self.0.is_empty() {
            return Ok(all);
        }
        let mappings = read_text(&proc.join("smaps")).unwrap_or_default();
        // The sum is exact where its parts are rounded down: what is taken off is rather too little.
        Ok(all - mapped(&mappings, |file| self.0.contains_key(&file)))
    }
}

/// Which image has this name in /proc.
fn named(target: &str) -> Option<(Rung, String)> {
    let (rung, path) = match target.strip_prefix(ANONYMOUS) {
        Some(name) => (Rung::Memory, name),
        None if target.starts_with(INSTALLED) => (Rung::Installed, target.rsplit_once('/')?.1),
        None => return None,
    };
    let name = path.strip_suffix(" (deleted)").unwrap_or(path);
    // An anonymous file may also be an order.
    let known = ["session", "front", "tunnel", "recorder", "resolver"];
    let program = name.strip_prefix("fleetgate-")?;
    known.contains(&program).then(|| (rung, program.to_owned()))
}

/// Bytes of a file that the page cache has.
fn cached(path: &Path) -> Result<f64> {
    let mut fincore = Command::new(rival("fincore", "util-linux-extra")?);
    let text = output(
        fincore
            .args(["--bytes", "--noheadings", "--output", "RES"])
            .arg(path),
    )?;
    let text = text.trim();
    text.parse()
        .map_err(|_| format!("fincore says {text:?} of {}", path.display()))
}

/// Kilobytes (PSS), from smaps, of mappings of the files for which `is_image`, without pages that are the process's own.
fn mapped(smaps: &str, is_image: impl Fn(FileId) -> bool) -> f64 {
    let (mut sum, mut inside, mut shared) = (0.0, false, 0.0);
    for line in smaps.lines() {
        if let Some(file) = mapping(line) {
            inside = is_image(file);
        } else if !inside {
        } else if let Some(kilobytes) = field(line, "Pss:") {
            shared = kilobytes;
        } else if let Some(own) = field(line, "Anonymous:") {
            // The kernel writes it behind Pss.
            sum += f64::max(shared - own, 0.0);
        }
    }
    sum
}

/// The file of a mapping, if this line of smaps opens one: `55d0-7ffd r-xp 00001000 fe:00 42   /usr/bin/x`.
fn mapping(line: &str) -> Option<FileId> {
    let mut words = line.split_ascii_whitespace();
    let device = words.nth(3)?;
    let (major, minor) = device.split_once(':')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    Some((hex(major)?, hex(minor)?, words.next()?.parse().ok()?))
}

/// Kilobytes, from smaps or smaps_rollup.
fn field(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|l| l.strip_prefix(name))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// The parts of `st_dev`, as the C library takes it apart.
fn major(device: u64) -> u64 {
    (device >> 8) & 0xfff | (device >> 32) & !0xfff
}

fn minor(device: u64) -> u64 {
    device & 0xff | (device >> 12) & !0xff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_writes_is_read() {
        assert_eq!(
            field(
                "55d0-7ffd ---p [rollup]\nRss:  900 kB\nPss:    512 kB\nPss_Dirty: 9 kB\n",
                "Pss:"
            ),
            Some(512.0)
        );
        assert_eq!(field("Rss: 900 kB\n", "Pss:"), None);
        assert_eq!((major(0xfe01), minor(0xfe01)), (0xfe, 1));
        let smaps = "1000-3000 r-xp 00001000 fe:01 42   /memfd:fleetgate-front (deleted)\n\
                     Rss: 90 kB\nPss:  40 kB\nPss_Dirty: 3 kB\nAnonymous:  8 kB\n\
                     3000-4000 rw-p 00000000 00:00 0 \nPss:  100 kB\nAnonymous:  100 kB\n\
                     5000-6000 r-xp 00001000 fe:01 43   /usr/bin/a b\nPss:  7 kB\nAnonymous:  0 kB\n\
                     6000-7000 rw-p 00001000 fe:01 42   /memfd:fleetgate-front (deleted)\nPss:  4 kB\nAnonymous:  5 kB\n";
        assert_eq!(mapped(smaps, |file| file == (0xfe, 1, 42)), 32.0);
        assert_eq!(mapped(smaps, |file| file == (0xfe, 1, 43)), 7.0);
    }

    #[test]
    fn images_are_told_from_other_files() {
        for (target, image) in [
            ("/memfd:fleetgate-front (deleted)", Some((Rung::Memory, "front"))),
            ("/memfd:fleetgate-order (deleted)", None),
            (
                "/usr/lib/fleetgate/0.1.0/fleetgate-tunnel",
                Some((Rung::Installed, "tunnel")),
            ),
            ("/usr/bin/fleetgate-front", None),
            ("socket:[7]", None),
        ] {
            assert_eq!(
                named(target),
                image.map(|(rung, name)| (rung, name.to_owned())),
                "{target}"
            );
        }
    }

    #[test]
    fn what_should_be_held_is_compared_with_what_is() {
        let image = Image {
            name: "front".to_owned(),
            rung: Rung::Memory,
            kilobytes: 12.0,
        };
        let images = Images([((0, 1, 42), image)].into());
        assert_eq!(images.kilobytes(), 12.0);
        images.are(&["front"], Rung::Memory).expect("it is");
        for (names, rung) in [
            (&["front"][..], Rung::Installed),
            (&["front", "tunnel"], Rung::Memory),
            (&[], Rung::Memory),
        ] {
            let why = images.are(names, rung).expect_err("they are others");
            assert!(why.contains("(\"front\", Memory)"), "{why}");
        }
    }

    #[test]
    fn this_process_holds_an_open_file_that_is_counted_by_its_cache() {
        let path = std::env::current_exe().expect("a program");
        assert!(cached(&path).expect("fincore") > 4096.0);
        assert!(
            Images::default()
                .without(Path::new("/proc/self"))
                .expect("readable")
                > 100.0
        );
    }
}
