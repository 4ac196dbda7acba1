//! Text for frames to the monitor.

use std::ffi::CString;

/// The longest text in a frame, in characters.
const MAX_TEXT: usize = 256;

/// A text for a frame: without its NULs, and cut. A peer's text may hold anything.
pub(crate) fn c_string(text: &str) -> CString {
    let clean: String = text.chars().filter(|c| *c != '\0').take(MAX_TEXT).collect();
    CString::new(clean).unwrap_or_default()
}
