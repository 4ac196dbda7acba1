//! Calls that are shown by their name and with their arguments as hexadecimal numbers: how many those are.

use super::{Res, Row, call};
use crate::decode::kind::{HEX, Kind};
use std::sync::OnceLock;

static NAMES: [(&str, Kind); 6] = [
    ("arg1", HEX),
    ("arg2", HEX),
    ("arg3", HEX),
    ("arg4", HEX),
    ("arg5", HEX),
    ("arg6", HEX),
];

/// Their names, and how many arguments they have.
#[rustfmt::skip]
pub(super) static COUNTS: &[(&str, u8)] = &[
    ("_sysctl", 1), ("afs_syscall", 5), ("bdflush", 2), ("break", 1), ("cachestat", 4),
    ("clock_adjtime64", 2), ("create_module", 2), ("epoll_ctl_old", 4), ("epoll_wait_old", 4), ("ftime", 1),
    ("futex_requeue", 4), ("futex_wait", 6), ("futex_wake", 4), ("get_kernel_syms", 1),
    ("get_thread_area", 1), ("getdents", 3), ("getpmsg", 5), ("gtty", 2), ("idle", 0), ("io_cancel", 3),
    ("io_getevents", 5), ("io_pgetevents", 6), ("io_pgetevents_time64", 6), ("io_submit", 3),
    ("listmount", 4), ("listns", 4), ("lock", 1), ("lsm_get_self_attr", 4), ("lsm_list_modules", 3),
    ("lsm_set_self_attr", 4), ("map_shadow_stack", 3), ("migrate_pages", 4), ("modify_ldt", 3),
    ("move_pages", 6), ("mpx", 0), ("mq_timedreceive_time64", 5), ("mq_timedsend_time64", 5),
    ("nfsservctl", 3), ("oldolduname", 1), ("olduname", 1), ("ppoll_time64", 5), ("prof", 4), ("profil", 4),
    ("pselect6_time64", 6), ("putpmsg", 5), ("query_module", 5), ("readdir", 3), ("recvmmsg_time64", 5),
    ("rt_sigtimedwait_time64", 4), ("sched_rr_get_interval_time64", 2), ("security", 3),
    ("semtimedop_time64", 4), ("set_mempolicy_home_node", 4), ("set_thread_area", 1), ("sgetmask", 0),
    ("sigpending", 1), ("sigreturn", 0), ("ssetmask", 1), ("statmount", 4), ("stime", 1), ("stty", 2),
    ("sysfs", 3), ("tuxcall", 3), ("ulimit", 2), ("uprobe", 0), ("uretprobe", 0), ("ustat", 2), ("vm86", 2),
    ("vm86old", 1), ("vserver", 5),
];

/// A row for each.
pub(super) fn rows() -> &'static [Row] {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    ROWS.get_or_init(|| {
        let row = |(name, count): &(&'static str, u8)| {
            let arguments = NAMES.get(..usize::from(*count)).unwrap_or(&NAMES);
            call(name, arguments, Res::Number)
        };
        COUNTS.iter().map(row).collect()
    })
}
