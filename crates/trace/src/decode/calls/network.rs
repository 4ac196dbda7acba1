//! Calls on sockets.

use super::{Res, Row, call};
use crate::decode::constants as c;
use crate::decode::kind::{Count, FD, INT, Kind, SIZE, UINT, Width, bits, named};
use crate::decode::show::{network as n, options, time};

const TYPE: Kind = Kind::By(n::socket_type, Width::Four);
const PROTOCOL: Kind = Kind::By(n::protocol, Width::Four);
const GIVEN: Kind = Kind::By(n::given_address, Width::Word);
const FILLED: Kind = Kind::Late(&Kind::By(n::filled_address_1, Width::Word));
const LENGTH: Kind = Kind::Kept(n::keep_length, n::changed_length);
const DATA: Kind = Kind::Bytes(Count::Argument(2));
const FLAGS: Kind = bits(&c::MSG);
const LEVEL: Kind = named(&c::SOL);
const OPTION: Kind = Kind::By(options::name, Width::Four);

#[rustfmt::skip]
pub(super) static ROWS: &[Row] = &[
    call("socket", &[("domain", named(&c::AF)), ("type", TYPE), ("protocol", PROTOCOL)], Res::Descriptor),
    call("socketpair", &[("domain", named(&c::AF)), ("type", TYPE), ("protocol", PROTOCOL), ("sv", Kind::Late(&n::PAIR))],
        Res::Number),
    call("bind", &[("sockfd", FD), ("addr", GIVEN), ("addrlen", INT)], Res::Number),
    call("connect", &[("sockfd", FD), ("addr", GIVEN), ("addrlen", INT)], Res::Number),
    call("listen", &[("sockfd", FD), ("backlog", INT)], Res::Number),
    call("accept", &[("sockfd", FD), ("addr", FILLED), ("addrlen", LENGTH)], Res::Descriptor),
    call("accept4", &[("sockfd", FD), ("addr", FILLED), ("addrlen", LENGTH), ("flags", bits(&c::SOCK_FLAGS))], Res::Descriptor),
    call("getsockname", &[("sockfd", FD), ("addr", FILLED), ("addrlen", LENGTH)], Res::Number),
    call("getpeername", &[("sockfd", FD), ("addr", FILLED), ("addrlen", LENGTH)], Res::Number),
    call("send", &[("sockfd", FD), ("buf", DATA), ("len", SIZE), ("flags", FLAGS)], Res::Number),
    call("recv", &[("sockfd", FD), ("buf", Kind::Late(&Kind::Bytes(Count::Result))), ("len", SIZE), ("flags", FLAGS)],
        Res::Number),
    call("sendto", &[("sockfd", FD), ("buf", DATA), ("len", SIZE), ("flags", FLAGS),
        ("dest_addr", Kind::By(n::sendto_address, Width::Word)), ("addrlen", UINT)], Res::Number),
    call("recvfrom", &[("sockfd", FD), ("buf", Kind::Late(&Kind::Bytes(Count::Result))), ("len", SIZE), ("flags", FLAGS),
        ("src_addr", Kind::Late(&Kind::By(n::filled_address_4, Width::Word))), ("addrlen", LENGTH)], Res::Number),
    call("sendmsg", &[("sockfd", FD), ("msg", Kind::By(n::sent_message, Width::Word)), ("flags", FLAGS)], Res::Number),
    call("recvmsg", &[("sockfd", FD), ("msg", Kind::Kept(n::keep_name_length, n::received_message)), ("flags", FLAGS)],
        Res::Number),
    call("sendmmsg", &[("sockfd", FD), ("msgvec", Kind::By(n::sent_messages, Width::Word)), ("vlen", UINT), ("flags", FLAGS)],
        Res::Number),
    call("recvmmsg", &[("sockfd", FD), ("msgvec", Kind::Late(&Kind::By(n::received_messages, Width::Word))), ("vlen", UINT),
        ("flags", FLAGS), ("timeout", Kind::To(&time::TIMESPEC))], Res::Number),
    call("shutdown", &[("sockfd", FD), ("how", named(&c::SHUTDOWN))], Res::Number),
    call("setsockopt", &[("sockfd", FD), ("level", LEVEL), ("optname", OPTION),
        ("optval", Kind::By(options::given, Width::Word)), ("optlen", INT)], Res::Number),
    call("getsockopt", &[("sockfd", FD), ("level", LEVEL), ("optname", OPTION),
        ("optval", Kind::Late(&Kind::By(options::got, Width::Word))), ("optlen", LENGTH)], Res::Number),
    call("socketcall", &[("call", named(&c::SOCKET_CALL)), ("args", Kind::Address)], Res::Number),
];
