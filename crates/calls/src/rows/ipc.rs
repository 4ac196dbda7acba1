//! Calls of System V's and POSIX's ways between processes, keys.

/// The rows, given to the macro `$then`.
#[macro_export]
macro_rules! ipc_calls {
    ($then:ident) => { $then! {
        shmget(key: KEY, size: SIZE, shmflg: Kind::By(shared_flags, Width::Four)) -> Number, in ipc;
        shmat(shmid: INT, shmaddr: ADDRESS, shmflg: bits(&c::SHM_AT)) -> Hex, in ipc memory;
        shmdt(shmaddr: ADDRESS) -> Number, in ipc memory;
        shmctl(shmid: INT, cmd: named(&c::SHM_CTL), buf: ADDRESS) -> Number, in ipc;
        semget(key: KEY, nsems: INT, semflg: Kind::By(plain_flags, Width::Four)) -> Number, in ipc;
        semop(semid: INT, sops: Kind::List(&OPERATION, Count::Argument(2)), nsops: UINT) -> Number, in ipc;
        semtimedop(semid: INT, sops: Kind::List(&OPERATION, Count::Argument(2)), nsops: UINT,
            timeout: Kind::To(&time::TIMESPEC)) -> Number, in ipc;
        semctl(semid: INT, semnum: INT, cmd: named(&c::SEM_CTL), arg: HEX) -> Number, in ipc;
        msgget(key: KEY, msgflg: Kind::By(plain_flags, Width::Four)) -> Number, in ipc;
        msgsnd(msqid: INT, msgp: ADDRESS, msgsz: SIZE, msgflg: bits(&c::MSG_RCV)) -> Number, in ipc;
        msgrcv(msqid: INT, msgp: ADDRESS, msgsz: SIZE, msgtyp: LONG, msgflg: bits(&c::MSG_RCV)) -> Number, in ipc;
        msgctl(msqid: INT, cmd: named(&c::IPC_CTL), buf: ADDRESS) -> Number, in ipc;
        ipc(call: named(&c::IPC_CALL), first: HEX, second: HEX, third: HEX, ptr: ADDRESS, fifth: HEX) -> Number, in ipc;
        mq_open(name: PATH, oflag: Kind::By(files::open_flags32, Width::Four), mode: Kind::Chosen(files::open_mode::<1>),
            attr: Kind::Chosen(queue)) -> Descriptor, in desc;
        mq_unlink(name: PATH) -> Number;
        mq_timedsend(mqdes: FD, msg_ptr: Kind::Bytes(Count::Argument(2)), msg_len: SIZE, msg_prio: UINT,
            abs_timeout: Kind::To(&time::TIMESPEC)) -> Number, in desc;
        mq_timedreceive(mqdes: FD, msg_ptr: Kind::Late(&Kind::Bytes(Count::Result)), msg_len: SIZE,
            msg_prio: Kind::Late(&Kind::One(&UINT)), abs_timeout: Kind::To(&time::TIMESPEC)) -> Number, in desc;
        mq_notify(mqdes: FD, sevp: Kind::By(signals::event, Width::Word)) -> Number, in desc;
        mq_getsetattr(mqdes: FD, newattr: ADDRESS, oldattr: ADDRESS) -> Number, in desc;
        add_key(type: TEXT, description: TEXT, payload: Kind::Bytes(Count::Argument(3)), plen: SIZE, keyring: RING) -> Number;
        request_key(type: TEXT, description: TEXT, callout_info: TEXT, dest_keyring: RING) -> Number;
        keyctl(operation: named(&c::KEYCTL), arg2: Kind::Chosen(key_argument), arg3: Kind::Chosen(key_second),
            arg4: Kind::Chosen(key_third), arg5: Kind::Chosen(key_fourth)) -> Number, in tested;
    } };
}
