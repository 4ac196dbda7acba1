//! What the installed headers may not have: calls of newer kernels, and errors that the kernel keeps to itself and that
//! a tracer sees all the same. The lists win over nothing: where a header says otherwise, that is an error.

use crate::shell::Result;
use std::collections::BTreeMap;

/// Since Linux 6.5; these have one number everywhere.
const CALLS: [(u32, &str); 20] = [
    (451, "cachestat"),
    (452, "fchmodat2"),
    (453, "map_shadow_stack"),
    (454, "futex_wake"),
    (455, "futex_wait"),
    (456, "futex_requeue"),
    (457, "statmount"),
    (458, "listmount"),
    (459, "lsm_get_self_attr"),
    (460, "lsm_set_self_attr"),
    (461, "lsm_list_modules"),
    (462, "mseal"),
    (463, "setxattrat"),
    (464, "getxattrat"),
    (465, "listxattrat"),
    (466, "removexattrat"),
    (467, "open_tree_attr"),
    (468, "file_getattr"),
    (469, "file_setattr"),
    (470, "listns"),
];

/// Of x86_64 alone: made by the kernel's own trampolines, Linux 6.11 and 6.18.
const X86_64_CALLS: [(u32, &str); 2] = [(335, "uretprobe"), (336, "uprobe")];

/// Errors of `linux/errno.h`, which is not installed. Four of the first five say that the
/// call is to be made again.
const ERRORS: [(u32, &str, &str); 19] = [
    (512, "ERESTARTSYS", "To be restarted if SA_RESTART is set"),
    (513, "ERESTARTNOINTR", "To be restarted"),
    (514, "ERESTARTNOHAND", "To be restarted if no handler"),
    (515, "ENOIOCTLCMD", ""),
    (516, "ERESTART_RESTARTBLOCK", "Interrupted by signal"),
    (517, "EPROBE_DEFER", ""),
    (518, "EOPENSTALE", ""),
    (519, "ENOPARAM", ""),
    (521, "EBADHANDLE", ""),
    (522, "ENOTSYNC", ""),
    (523, "EBADCOOKIE", ""),
    (524, "ENOTSUPP", ""),
    (525, "ETOOSMALL", ""),
    (526, "ESERVERFAULT", ""),
    (527, "EBADTYPE", ""),
    (528, "EJUKEBOX", ""),
    (529, "EIOCBQUEUED", ""),
    (530, "ERECALLCONFLICT", ""),
    (531, "ENOGRACE", ""),
];

/// The calls of a numbering with the newer ones.
pub fn with_newer(abi: &str, mut calls: BTreeMap<u32, String>) -> Result<BTreeMap<u32, String>> {
    let own = if abi == "x86_64" { &X86_64_CALLS[..] } else { &[] };
    for (number, name) in CALLS.iter().chain(own) {
        let known = calls.entry(*number).or_insert_with(|| (*name).to_owned());
        if known != name {
            return Err(format!(
                "{abi}: the headers call {number} {known}, the list {name}"
            ));
        }
    }
    Ok(calls)
}

/// The errors with the kernel's own. Whoever has no text has the C library's for what it does not know.
pub fn with_restarts(mut errors: BTreeMap<u32, (String, String)>) -> BTreeMap<u32, (String, String)> {
    for (number, name, says) in ERRORS {
        let says = match says {
            "" => format!("Unknown error {number}"),
            says => says.to_owned(),
        };
        errors.insert(number, (name.to_owned(), says));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_calls_are_added_and_a_contradiction_is_an_error() {
        let calls = |n: u32, name: &str| BTreeMap::from([(n, name.to_owned())]);
        let all = with_newer("x86_64", calls(0, "read")).expect("calls");
        assert_eq!(all.len(), 1 + CALLS.len() + X86_64_CALLS.len());
        let all = with_newer("aarch64", calls(452, "fchmodat2")).expect("calls");
        assert_eq!(all.len(), CALLS.len());
        assert!(with_newer("x32", calls(452, "other")).is_err());
    }
}
