//! Calls on sockets.

/// The rows, given to the macro `$then`.
#[macro_export]
macro_rules! network_calls {
    ($then:ident) => { $then! {
        socket(domain: named(&c::AF), type: TYPE, protocol: PROTOCOL) -> Descriptor, in tested network,
            audit Full socket (family: domain as Number, type: type as Number, protocol: protocol as Number);
        socketpair(domain: named(&c::AF), type: TYPE, protocol: PROTOCOL, sv: Kind::Late(&n::PAIR)) -> Number,
            in tested network;
        bind(sockfd: FD, addr: GIVEN, addrlen: INT) -> Number, in tested network,
            audit Commands bind (address: addr as Address(addrlen));
        connect(sockfd: FD, addr: GIVEN, addrlen: INT) -> Number, in tested network,
            audit Commands connect (address: addr as Address(addrlen));
        listen(sockfd: FD, backlog: INT) -> Number, in tested network,
            audit Full listen (descriptor: sockfd as Descriptor);
        accept(sockfd: FD, addr: FILLED, addrlen: LENGTH) -> Descriptor, in tested network,
            audit Full accept (descriptor: sockfd as Descriptor);
        accept4(sockfd: FD, addr: FILLED, addrlen: LENGTH, flags: bits(&c::SOCK_FLAGS)) -> Descriptor, in tested network,
            audit Full accept (descriptor: sockfd as Descriptor);
        getsockname(sockfd: FD, addr: FILLED, addrlen: LENGTH) -> Number, in network;
        getpeername(sockfd: FD, addr: FILLED, addrlen: LENGTH) -> Number, in network;
        send(sockfd: FD, buf: DATA, len: SIZE, flags: FLAGS) -> Number;
        recv(sockfd: FD, buf: Kind::Late(&Kind::Bytes(Count::Result)), len: SIZE, flags: FLAGS) -> Number;
        sendto(sockfd: FD, buf: DATA, len: SIZE, flags: FLAGS, dest_addr: Kind::By(n::given_address::<5>, Width::Word),
            addrlen: UINT) -> Number, in tested network,
            audit Commands connect if Bits(flags, FAST_OPEN) (address: dest_addr as Address(addrlen)),
            audit Full send if Bits(dest_addr, u64::MAX) (address: dest_addr as Address(addrlen), bytes: len as Number);
        recvfrom(sockfd: FD, buf: Kind::Late(&Kind::Bytes(Count::Result)), len: SIZE, flags: FLAGS,
            src_addr: Kind::Late(&Kind::By(n::filled_address::<5>, Width::Word)), addrlen: LENGTH) -> Number, in tested network;
        sendmsg(sockfd: FD, msg: Kind::By(n::sent_message, Width::Word), flags: FLAGS) -> Number, in tested network,
            audit Commands connect if Bits(flags, FAST_OPEN) (address: msg as Message),
            audit Full send if Addressed(msg, None) (address: msg as Message);
        recvmsg(sockfd: FD, msg: Kind::Kept(n::keep_name_length, n::received_message), flags: FLAGS) -> Number,
            in tested network;
        sendmmsg(sockfd: FD, msgvec: Kind::By(n::sent_messages, Width::Word), vlen: UINT, flags: FLAGS) -> Number, in network,
            audit Commands connect if Bits(flags, FAST_OPEN) (address: msgvec as Message),
            audit Full send if Addressed(msgvec, Some(2)) (address: msgvec as Messages(vlen), messages: vlen as Number);
        recvmmsg(sockfd: FD, msgvec: Kind::Late(&Kind::By(n::received_messages, Width::Word)), vlen: UINT, flags: FLAGS,
            timeout: Kind::To(&time::TIMESPEC)) -> Number, in network;
        shutdown(sockfd: FD, how: named(&c::SHUTDOWN)) -> Number, in tested network;
        setsockopt(sockfd: FD, level: LEVEL, optname: OPTION, optval: Kind::By(options::given, Width::Word),
            optlen: INT) -> Number, in tested network;
        getsockopt(sockfd: FD, level: LEVEL, optname: OPTION, optval: Kind::Late(&Kind::By(options::got, Width::Word)),
            optlen: LENGTH) -> Number, in tested network;
        socketcall(call: named(&c::SOCKET_CALL), args: Kind::Address) -> Number, in tested network desc;
    } };
}
