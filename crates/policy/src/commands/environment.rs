//! The variables of a named command: which names it may have, and which of them a client may not send, because a program
//! obeys them.

use crate::Invalid;
use crate::text::shortened;

/// Whether a command may have a variable of this name; the reason, if not.
pub(super) fn check_variable(name: &str) -> Result<(), Invalid> {
    let why = if name.is_empty() || name.contains(['=', '\0']) {
        "has no name of a variable"
    } else if name.starts_with("FLEETGATE_") {
        "is the node's own to set"
    } else {
        return Ok(());
    };
    Err(Invalid(format!("the variable {:?} {why}", shortened(name))))
}

/// Whether a loader, a shell or an interpreter does what a variable of this name says.
pub(super) fn is_obeyed(name: &str) -> bool {
    const OBEYED: [&str; 17] = [
        "PATH",
        "IFS",
        "ENV",
        "BASH_ENV",
        "BASHOPTS",
        "SHELLOPTS",
        "PS4",
        "PERL5LIB",
        "PERL5OPT",
        "PERLLIB",
        "PYTHONHOME",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "RUBYLIB",
        "RUBYOPT",
        "NODE_OPTIONS",
        "GCONV_PATH",
    ];
    ["LD_", "DYLD_", "GLIBC_", "BASH_FUNC_"]
        .iter()
        .any(|start| name.starts_with(start))
        || OBEYED.contains(&name)
}
