//! Calls on the kernel itself: filters, programs in it, modules, rings, random numbers.

/// The rows, given to the macro `$then`.
#[macro_export]
macro_rules! misc_calls {
    ($then:ident) => { $then! {
        getrandom(buf: Kind::Late(&Kind::By(random, Width::Word)), buflen: SIZE, flags: bits(&c::GETRANDOM)) -> Number, in tested;
        seccomp(operation: named(&c::SECCOMP_OP), flags as int: Kind::Chosen(seccomp_flags),
            args: Kind::Chosen(seccomp_arguments)) -> Number, in tested;
        bpf(cmd: named(&c::BPF), attr: ADDRESS, size: UINT) -> Number, in tested desc,
            audit Commands bpf (command: cmd as Number);
        io_uring_setup(entries: UINT, params: Kind::Changed(ring_before, ring_after)) -> Descriptor, in tested desc,
            audit Commands io_uring (entries: entries as Number);
        io_uring_enter(fd: FD, to_submit: UINT, min_complete: UINT, flags: bits(&c::IO_URING_ENTER),
            sig: Kind::By(signals::set_sized_by::<5>, Width::Word), sigsz: SIZE) -> Number, in tested signal desc;
        io_uring_register(fd: FD, opcode: named(&c::IO_URING_REGISTER), arg: ADDRESS, nr_args: UINT) -> Number,
            in tested desc memory;
        landlock_create_ruleset(attr: Kind::Chosen(rule_attributes), size: SIZE,
            flags: bits(&c::LANDLOCK_CREATE)) -> By(ruleset), in desc;
        landlock_add_rule(ruleset_fd: FD, rule_type: named(&c::LANDLOCK_RULE), rule_attr: Kind::Chosen(rule),
            flags: HEX32) -> Number, in desc;
        landlock_restrict_self(ruleset_fd: FD, flags: HEX32) -> Number, in desc;
        perf_event_open(attr: ADDRESS, pid: INT, cpu: INT, group_fd: FD,
            flags: Kind::Bits(&c::PERF_FLAGS, Width::Word)) -> Descriptor, in tested desc;
        init_module(module_image: ADDRESS, len: SIZE, param_values: TEXT) -> Number,
            audit Commands module.load (parameters: param_values as Text);
        finit_module(fd: FD, param_values: TEXT, flags: bits(&c::MODULE_INIT)) -> Number, in tested desc,
            audit Commands module.load (descriptor: fd as Descriptor, parameters: param_values as Text);
        delete_module(name: TEXT, flags: bits(&c::DELETE_MODULE)) -> Number, in tested,
            audit Commands module.remove (name: name as Text);
        reboot(magic: named(&c::REBOOT_MAGIC1), magic2: named(&c::REBOOT_MAGIC2), op: named(&c::REBOOT),
            arg: Kind::Chosen(reboot_argument)) -> Number, in tested;
        syslog(type: Kind::By(syslog, Width::Four), bufp: Kind::Chosen(syslog_buffer),
            len as int: Kind::Chosen(syslog_length)) -> Number, in tested;
        kexec_load(entry: HEX, nr_segments: SIZE, segments: ADDRESS, flags: HEX) -> Number,
            audit Commands module.kexec ();
        kexec_file_load(kernel_fd: FD, initrd_fd: FD, cmdline_len: SIZE, cmdline: Kind::Bytes(Count::Argument(2)),
            flags: HEX) -> Number, in desc,
            audit Commands module.kexec ();
        iopl(level: INT) -> Number;
        ioperm(from: HEX, num: HEX, turn_on: INT) -> Number;
        lookup_dcookie(cookie: Kind::Wide, buffer: ADDRESS, len: SIZE) -> Number;
    } };
}
