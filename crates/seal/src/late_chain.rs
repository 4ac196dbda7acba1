//! A fallback chain that is opened when the first process is started from it: a node of no cluster unpacks and proves nothing for a
//! tunnel that it does not have, one that enters no container nothing for those. It is opened on a thread that starts processes,
//! where it holds up no login.

use crate::{FallbackChain, Options, Source};
use std::ffi::CStr;
use std::sync::Arc;

/// A chain, or what it will be made of.
pub struct LateChain {
    source: Source,
    options: Options,
    opened: Option<Arc<FallbackChain>>,
}

impl LateChain {
    /// Of this source.
    pub const fn new(source: Source, options: Options) -> LateChain {
        LateChain {
            source,
            options,
            opened: None,
        }
    }

    /// Opens it, if that was not done. What failed is tried again at the next call.
    pub fn chain(&mut self) -> Result<Arc<FallbackChain>, String> {
        let opened = match self.opened.take() {
            Some(chain) => chain,
            None => open(&self.source, &self.options)?.into(),
        };
        Ok(self.opened.insert(opened).clone())
    }

    /// The chain, if it was opened.
    pub fn opened(&self) -> Option<Arc<FallbackChain>> {
        self.opened.clone()
    }
}

/// What images of this name are started with; everything else is as usual.
pub fn named(name: &CStr) -> Options {
    Options {
        name: Some(name.into()),
        ..Options::default()
    }
}

/// Opens a chain. An error says where to look.
pub fn open(source: &Source, options: &Options) -> Result<FallbackChain, String> {
    FallbackChain::open(source.clone(), options.clone())
        .map_err(|e| format!("{e}; see `fleetgate seal doctor`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn it_is_opened_once_and_tried_again_where_it_failed() {
        let path = std::env::temp_dir().join(format!("fleetgate-late-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let mut late = LateChain::new(Source::File(path.clone()), named(c"true"));
        assert!(late.opened().is_none());
        for _ in 0..2 {
            let why = late.chain().expect_err("there is no file");
            assert!(why.contains("seal doctor"), "{why}");
        }
        symlink("/bin/true", &path).expect("made");
        let first = late.chain().expect("it is there now");
        std::fs::remove_file(&path).expect("removed");
        assert!(Arc::ptr_eq(&first, &late.chain().expect("open")));
        assert!(late.opened().is_some());
    }
}
