"""Makes system calls for a tracer to see: one group for each call, each after a mark that names it.

    calls.py          all of them
    calls.py NAME     one
    calls.py --list   their names

A mark is a write to descriptor -1, which fails and changes nothing. x86_64 alone: numbers stand here as they are.
"""

import ctypes
import os
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
N = ctypes.c_long
KEEP = []


def arg(value):
    if isinstance(value, int):
        return N(value)
    if isinstance(value, bytes):
        value = ctypes.create_string_buffer(value, len(value) + 1)
    KEEP.append(value)
    return ctypes.cast(value, ctypes.c_void_p)


def call(number, *arguments):
    return LIBC.syscall(N(number), *[arg(a) for a in arguments])


def room(size):
    buffer = ctypes.create_string_buffer(size)
    KEEP.append(buffer)
    return buffer


def at(value):
    return ctypes.addressof(value)


def text(value):
    buffer = ctypes.create_string_buffer(value)
    KEEP.append(buffer)
    return at(buffer)


def packed(form, *values):
    data = struct.pack(form, *values)
    buffer = ctypes.create_string_buffer(data, len(data))
    KEEP.append(buffer)
    return at(buffer)


def strings(*values):
    return packed("%dQ" % (len(values) + 1), *[text(v) for v in values], 0)


def vectors(*values):
    words = []
    for value in values:
        words += [at(value) if not isinstance(value, bytes) else text(value), len(value)]
    return packed("%dQ" % len(words), *words)


CWD = -100
NULL = 0
BAD = 8


def opened(path=b"file", flags=0o102, mode=0o644):
    return call(257, CWD, path, flags, mode)


def c_openat():
    for flags in (0, 1, 2, 3, 0o100, 0o1101, 0o2002, 0o200000, 0o20200000, 0o10000000, 0x7fffffff, 0o2100000):
        call(3, call(257, CWD, b"x", flags, 0o600))
    call(257, CWD, BAD, 0)
    call(257, -1, NULL, 0)
    call(257, CWD, b"a\n\t\"\\\x01\x7f\xff1\x0012", 0)
    call(257, CWD, b"l" * 4095, 0)
    call(257, CWD, b"l" * 5000, 0)

def c_open():
    call(2, b"x", 0o101, 0o4755)
    call(2, b"/nowhere/x", 0, 0)

def c_openat2():
    call(437, CWD, b"x", packed("QQQ", 0o102, 0o640, 0), 24)
    call(437, CWD, b"x", packed("QQQ", 0, 0, 0x3f), 24)
    call(437, CWD, b"x", BAD, 24)

def c_creat():
    call(85, b"x", 0o600)

def c_close():
    call(3, -1)
    call(3, 999)

def c_close_range():
    call(436, 900, 1000, 0)
    call(436, 900, 0xffffffff, 4)
    call(436, 900, 0, 7)

def c_read():
    fd = opened(b"/etc/passwd", 0, 0)
    buffer = room(200)
    call(0, fd, at(buffer), 10)
    call(0, fd, at(buffer), 32)
    call(0, fd, at(buffer), 33)
    call(0, fd, at(buffer), 0)
    call(0, fd, BAD, 10)
    call(0, -1, at(buffer), 10)
    call(0, fd, NULL, 10)
    call(3, fd)
    empty = opened(b"/dev/null", 0, 0)
    call(0, empty, at(buffer), 10)
    call(3, empty)

def c_write():
    fd = opened(b"/dev/null", 1, 0)
    call(1, fd, b"hello", 5)
    call(1, fd, b"x" * 100, 32)
    call(1, fd, b"x" * 100, 33)
    call(1, fd, b"\0\1\x0010\x7f\x80\xff\r\v\f\\\"\x1b[1m", 20)
    call(1, fd, BAD, 5)
    call(1, fd, NULL, 5)
    call(1, fd, b"x", 0)
    call(1, -1, b"\0" * 9, 9)
    call(3, fd)

def c_pread64():
    fd = opened(b"/etc/passwd", 0, 0)
    call(17, fd, at(room(20)), 20, 3)
    call(17, fd, at(room(20)), 20, -3)
    call(18, fd, b"abc", 3, 1 << 40)
    call(3, fd)

def c_readv():
    fd = opened(b"/etc/passwd", 0, 0)
    call(19, fd, vectors(room(5), room(40), room(3)), 3)
    call(19, fd, vectors(room(5)), 1)
    call(19, fd, BAD, 1)
    call(19, -1, vectors(room(5)), 1)
    call(295, fd, vectors(room(5)), 1, 2, 0)
    call(327, fd, vectors(room(5)), 1, 2, 0, 1)
    call(3, fd)

def c_writev():
    fd = opened(b"/dev/null", 1, 0)
    call(20, fd, vectors(b"abc", b"", b"x" * 50), 3)
    call(20, fd, vectors(*[b"a"] * 40), 40)
    call(20, fd, NULL, 3)
    call(20, fd, vectors(b"abc"), 0)
    call(296, fd, vectors(b"abc"), 1, 5, 0)
    call(328, fd, vectors(b"abc"), 1, 5, 0, 0xff)
    call(3, fd)

def c_stat():
    for path in (b"/", b"/dev/null", b"/etc/passwd", b"none", b"/proc/self/exe", b"/tmp"):
        call(4, path, at(room(144)))
        call(6, path, at(room(144)))
    call(4, b"/", NULL)

def c_fstat():
    fd = opened(b"/dev/zero", 0, 0)
    call(5, fd, at(room(144)))
    call(5, -1, at(room(144)))
    call(3, fd)

def c_newfstatat():
    call(262, CWD, b"/", at(room(144)), 0)
    call(262, CWD, b"", at(room(144)), 0x1000)
    call(262, CWD, b"/proc/self/cwd", at(room(144)), 0x100)
    call(262, CWD, b"x", at(room(144)), 0xffff)

def c_statx():
    call(332, CWD, b"/", 0, 0x7ff, at(room(256)))
    call(332, CWD, b"/dev/null", 0x2100, 0xfff, at(room(256)))
    call(332, CWD, b"none", 0x1900, 0x2001, at(room(256)))
    call(332, CWD, b"/", 0x6000, 0x7ff, at(room(256)))
    call(332, CWD, b"/", 0, 1, NULL)

def c_statfs():
    call(137, b"/proc", at(room(120)))
    call(137, b"none", at(room(120)))
    call(138, 0, at(room(120)))

def c_access():
    for mode in (0, 1, 2, 4, 7, 8, 15):
        call(21, b"/etc/passwd", mode)
    call(269, CWD, b"x", 4)
    call(439, CWD, b"x", 4, 0x300)
    call(439, CWD, b"x", 4, 0x4)

def c_lseek():
    fd = opened(b"/etc/passwd", 0, 0)
    for whence in range(6):
        call(8, fd, 1, whence)
    call(8, fd, -1, 0)
    call(3, fd)

def c_dup():
    fd = opened(b"/dev/null", 0, 0)
    call(3, call(32, fd))
    call(3, call(33, fd, 55))
    call(3, call(292, fd, 56, 0o2000000))
    call(292, fd, 56, 0xfff)
    call(3, fd)

def c_pipe():
    pair = room(8)
    for number, more in ((22, ()), (293, (0o2000000,)), (293, (0o2004000,)), (293, (0o40000,))):
        call(number, at(pair), *more)
        for fd in struct.unpack("ii", pair.raw):
            call(3, fd)
    call(293, at(pair), 0x7)
    call(22, BAD)

def c_fcntl():
    fd = opened(b"file", 0o102, 0o600)
    call(72, fd, 1)
    call(72, fd, 2, 1)
    call(72, fd, 1)
    call(72, fd, 3)
    call(72, fd, 4, 0o2000)
    call(72, fd, 3)
    call(3, call(72, fd, 0, 60))
    call(3, call(72, fd, 1030, 60))
    call(72, fd, 6, packed("hhqqi4x", 1, 0, 5, 10, 0))
    call(72, fd, 5, packed("hhqqi4x", 0, 0, 0, 0, 0))
    call(72, fd, 37, packed("hhqqi4x", 2, 0, 0, 0, 0))
    call(72, fd, 36, packed("hhqqi4x", 0, 0, 0, 0, 0))
    call(72, fd, 8, os.getpid())
    call(72, fd, 9)
    call(72, fd, 10, 10)
    call(72, fd, 11)
    call(72, fd, 1024, 2)
    call(72, fd, 1025)
    call(72, fd, 1032)
    call(72, fd, 1034)
    call(72, fd, 1033, 3)
    call(72, fd, 999, 3)
    call(72, fd, 7, BAD)
    call(72, fd, 15, packed("ii", 1, 1))
    call(72, fd, 16, at(room(8)))
    call(3, fd)

def c_ioctl():
    call(16, 99, 0x5401, at(room(60)))
    call(16, 99, 0x5413, at(room(60)))
    pair = room(8)
    call(22, at(pair))
    one, two = struct.unpack("ii", pair.raw)
    call(16, one, 0x541b, at(room(4)))
    call(16, one, 0x5421, packed("i", 1))
    call(16, one, 0x12345678, 8)
    call(16, one, 0xc0041272, 8)
    call(16, one, 0x40041272, 8)
    call(16, one, 0x5450)
    call(16, one, 0x5451)
    call(16, one, 0x8912, 8)
    call(3, one)
    call(3, two)
    terminal = opened(b"/dev/ptmx", 0o402, 0)
    call(16, terminal, 0x5401, at(room(60)))
    settings = room(60)
    call(16, terminal, 0x5401, at(settings))
    call(16, terminal, 0x5402, at(settings))
    call(16, terminal, 0x5413, at(room(8)))
    call(16, terminal, 0x5414, packed("HHHH", 24, 80, 0, 0))
    call(16, terminal, 0x5413, at(room(8)))
    call(16, terminal, 0x80045430, at(room(4)))
    call(16, terminal, 0x40045431, packed("i", 0))
    call(16, terminal, 0x540f, at(room(4)))
    call(3, terminal)

def c_poll():
    pair = room(8)
    call(22, at(pair))
    one, two = struct.unpack("ii", pair.raw)
    call(7, packed("ihh", two, 4, 0), 1, 0)
    call(7, packed("ihhihhihh", one, 1, 0, two, 0x7ff, 0, -1, 1, 0), 3, 0)
    call(7, packed("ihh", one, 1, 0), 1, 0)
    call(7, NULL, 0, 0)
    call(7, BAD, 1, 0)
    call(7, packed("ihh", 999, 1, 0), 1, -1)
    call(271, packed("ihh", two, 4, 0), 1, packed("qq", 1, 5), NULL, 8)
    call(271, packed("ihh", one, 1, 0), 1, packed("qq", 0, 5), packed("Q", 1 << 16), 8)
    call(3, one)
    call(3, two)

def c_select():
    pair = room(8)
    call(22, at(pair))
    one, two = struct.unpack("ii", pair.raw)
    bit = lambda *fds: packed("16Q", sum(1 << f for f in fds), *[0] * 15)
    call(23, two + 1, bit(one), bit(two), NULL, packed("qq", 1, 0))
    call(23, two + 1, bit(one), NULL, bit(one), packed("qq", 0, 0))
    call(23, 0, NULL, NULL, NULL, packed("qq", 0, 1))
    call(23, -1, NULL, NULL, NULL, NULL)
    call(270, two + 1, bit(one), bit(two), NULL, packed("qq", 1, 0), packed("QQ", packed("Q", 1), 8))
    call(270, two + 1, bit(one), NULL, NULL, packed("qq", 0, 9), NULL)
    call(3, one)
    call(3, two)

def c_epoll():
    pair = room(8)
    call(22, at(pair))
    one, two = struct.unpack("ii", pair.raw)
    poll = call(291, 0o2000000)
    call(3, call(213, 1))
    call(291, 0xffff)
    call(233, poll, 1, two, packed("=IQ", 0x80000004, two))
    call(233, poll, 3, two, packed("=IQ", 4, 0x123456789abc))
    call(232, poll, at(room(120)), 10, 0)
    call(281, poll, at(room(120)), 10, 0, packed("Q", 2), 8)
    call(281, poll, at(room(120)), 10, 0, NULL, 8)
    call(441, poll, at(room(120)), 10, packed("qq", 0, 1), NULL, 8)
    call(233, poll, 2, two, NULL)
    call(232, poll, at(room(120)), 10, 0)
    call(233, poll, 9, two, BAD)
    call(232, -1, at(room(120)), 10, 0)
    for fd in (poll, one, two):
        call(3, fd)

def c_mmap():
    for prot, flags in ((1, 2), (3, 0x22), (7, 0x22), (0, 0x4022), (3, 0x20022), (3, 0x1), (0, 0x122), (3, 0x8022)):
        address = call(9, 0, 8192, prot, flags, -1, 0)
        if address > 0:
            call(11, address, 8192)
    call(9, 0, 0, 0x1000000f, 0x7fffffff, -1, 0)
    call(9, 0, 4096, 1, 0, -1, 0x1000)
    call(10, 1, 0, 0x0300000f)
    call(25, 1, 2, 3, 1)
    call(25, 1, 2, 3, 3, 4096)
    call(28, 1, 2, 4)
    call(28, 1, 2, 999)
    call(26, 1, 2, 7)
    call(27, 1, 2, BAD)
    call(149, 1, 2)
    call(151, 8)
    call(12, 0)

def c_memfd():
    fd = call(319, b"name", 3)
    call(72, fd, 1034)
    call(72, fd, 1033, 15)
    call(72, fd, 1034)
    call(3, fd)
    call(319, b"n" * 300, 0xfe0)

def address_in(port, host):
    return packed("=H", 2) and packed("!2sHI8x", struct.pack("=H", 2), port, host)

def c_socket():
    for family in (0, 1, 2, 10, 16, 17, 38, 40, 46, 99):
        for kind in (1, 2, 3, 5, 0x80002, 0x80801, 0xfffff7):
            for protocol in (0, 6, 17, 255):
                fd = call(41, family, kind, protocol)
                if fd >= 0:
                    call(3, fd)

def c_connect():
    fd = call(41, 2, 2, 0)
    call(42, fd, address_in(53, 0x7f000001), 16)
    call(49, fd, address_in(0, 0), 16)
    call(49, fd, address_in(80, 0xc0a80101), 16)
    six = packed("=HH", 10, 0x5000) and packed("=H2sI16sI", 10, b"\0\x50", 0, b"\x20\x01\x0d\xb8" + b"\0" * 11 + b"\1", 3)
    call(42, fd, six, 28)
    call(42, fd, packed("=H12s", 1, b"/run/nothing"), 15)
    call(42, fd, packed("=H6s", 1, b"/run/x"), 8)
    call(42, fd, packed("=H6s", 1, b"\0hello"), 8)
    call(42, fd, packed("=H", 1), 2)
    call(42, fd, packed("=HHII", 16, 0, 77, 0x11), 12)
    call(42, fd, packed("=HHII", 0, 0, 0, 0), 16)
    call(42, fd, packed("=HHII", 99, 1, 2, 3), 12)
    call(42, fd, NULL, 16)
    call(42, fd, BAD, 16)
    call(42, fd, packed("=H", 2), 1)
    call(42, fd, packed("=H14sII64s", 38, b"hash", 0, 0, b"sha256"), 88)
    call(42, fd, packed("=HHIIIi", 40, 0, 5, 2, 0, 0)  , 16)
    call(50, fd, 5)
    call(48, fd, 2)
    call(48, fd, 9)
    call(3, fd)

def c_getsockname():
    fd = call(41, 2, 2, 0)
    call(49, fd, address_in(0, 0x7f000001), 16)
    call(51, fd, at(room(16)), packed("i", 16))
    call(51, fd, at(room(128)), packed("i", 128))
    call(51, fd, at(room(128)), packed("i", 4))
    call(52, fd, at(room(128)), packed("i", 128))
    call(51, fd, NULL, NULL)
    call(43, fd, at(room(128)), packed("i", 128))
    call(43, fd, NULL, NULL)
    call(288, fd, at(room(128)), packed("i", 128), 0o2004000)
    call(3, fd)

def c_sockopt():
    fd = call(41, 2, 1, 0)
    call(54, fd, 1, 2, packed("i", 1), 4)
    call(54, fd, 1, 13, packed("ii", 1, 5), 8)
    call(54, fd, 1, 20, packed("qq", 1, 5), 16)
    call(54, fd, 6, 1, packed("i", 1), 4)
    call(54, fd, 41, 26, packed("i", 1), 4)
    call(54, fd, 99, 26, packed("i", 1), 4)
    call(54, fd, 1, 9999, packed("i", 1), 4)
    call(54, fd, 1, 2, NULL, 4)
    call(55, fd, 1, 4, at(room(4)), packed("i", 4))
    call(55, fd, 1, 3, at(room(4)), packed("i", 8))
    call(55, fd, 1, 13, at(room(8)), packed("i", 8))
    call(55, fd, 0, 2, at(room(4)), packed("i", 4))
    call(55, fd, 1, 9999, at(room(4)), packed("i", 4))
    call(54, fd, 6, 13, b"cubic", 5)
    call(3, fd)

def c_socketpair():
    pair = room(8)
    call(53, 1, 0x80801, 0, at(pair))
    one, two = struct.unpack("ii", pair.raw)
    call(44, one, b"hello there", 11, 0x4000, NULL, 0)
    call(45, two, at(room(50)), 50, 0x40, NULL, NULL)
    call(45, two, at(room(50)), 50, 0x40, NULL, NULL)
    message = packed("QIxxxxQQQQi4x", 0, 0, vectors(b"abc", b"de"), 2, 0, 0, 0)
    call(46, one, message, 0x4000)
    control = packed("Qiii4x", 20, 1, 1, one)
    call(46, one, packed("QIxxxxQQQQi4x", 0, 0, vectors(b"abc"), 1, control, 24, 0), 0)
    got = packed("QIxxxxQQQQi4x", at(room(16)), 16, vectors(room(5)), 1, 0, 0, 0)
    call(47, two, got, 0)
    got = packed("QIxxxxQQQQi4x", 0, 0, vectors(room(10)), 1, at(room(64)), 64, 0)
    call(47, two, got, 0x40000000)
    call(47, two, got, 0x40)
    call(3, one)
    call(3, two)
    call(53, 1, 9, 0, at(pair))

def c_sendto():
    fd = call(41, 2, 2, 0)
    call(44, fd, b"data", 4, 0, address_in(9, 0x7f000001), 16)
    call(44, fd, b"data", 4, 0xfffffff, BAD, 16)
    call(45, fd, at(room(9)), 9, 0x40, at(room(16)), packed("i", 16))
    call(3, fd)

def c_kill():
    for number in (0, 9, 15, 34, 64, 65, 99):
        call(62, 1 << 22, number)
    call(200, 1 << 22, 2)
    call(234, 1 << 22, 1 << 22, 0)

def c_rt_sigaction():
    old = room(32)
    call(13, 10, NULL, at(old), 8)
    call(13, 10, packed("QQQQ", 1, 0x14000000, 0x7000, 0x10000), at(old), 8)
    call(13, 10, packed("QQQQ", 0, 0xdfffffff, 0x7000, 2), at(old), 8)
    call(13, 10, packed("QQQQ", 0, 0, 0, 0xffffffffffffffff), at(old), 8)
    call(13, 10, packed("QQQQ", 0x1234, 0x0c000004, 0x5678, 0x7ffffffffffffffe), NULL, 8)
    call(13, 10, NULL, at(old), 8)
    call(13, 10, packed("QQQQ", 0, 0, 0, 0), NULL, 8)
    call(13, 9, BAD, NULL, 8)
    call(13, 99, BAD, NULL, 7)

def c_rt_sigprocmask():
    call(14, 0, packed("Q", 1 << 16), at(room(8)), 8)
    call(14, 2, packed("Q", 0), at(room(8)), 8)
    call(14, 1, NULL, at(room(8)), 8)
    call(14, 9, packed("Q", 6), NULL, 8)
    call(14, 0, BAD, NULL, 8)
    call(127, at(room(8)), 8)
    call(131, NULL, at(room(24)))
    call(131, packed("Qi4xQ", 0x5000, 0, 10), NULL)
    call(128, packed("Q", 1 << 9), NULL, packed("qq", 0, 0), 8)

def c_directories():
    call(79, at(room(100)), 100)
    call(79, at(room(1)), 1)
    call(83, b"d", 0o755)
    call(258, CWD, b"e", 0o1777)
    call(80, b"d")
    call(80, b"..")
    fd = opened(b".", 0o200000, 0)
    call(217, fd, at(room(4096)), 4096)
    call(217, fd, at(room(4096)), 4096)
    call(217, -1, at(room(10)), 10)
    call(81, fd)
    call(3, fd)
    call(84, b"d")
    call(263, CWD, b"e", 0x200)
    call(263, CWD, b"e", 0)
    call(95, 0o22)
    call(95, 0)
    call(95, 0o22)
    call(161, b"/nowhere")

def c_names():
    call(85, b"a", 0o600)
    call(82, b"a", b"b")
    call(264, CWD, b"b", CWD, b"c")
    call(316, CWD, b"c", CWD, b"d", 1)
    call(316, CWD, b"c", CWD, b"d", 0xff)
    call(86, b"d", b"e")
    call(265, CWD, b"d", CWD, b"f", 0x400)
    call(88, b"target", b"s")
    call(266, b"target", CWD, b"t")
    call(89, b"s", at(room(99)), 99)
    call(267, CWD, b"t", at(room(99)), 99)
    call(89, b"none", at(room(99)), 99)
    call(87, b"s")
    call(133, b"n", 0o10644, 0)
    call(133, b"m", 0o20644, 0x103)
    call(259, CWD, b"k", 0o644, 0)
    call(259, CWD, b"/x/k", 0o60644, 0x12345)
    call(90, b"d", 0o4755)
    call(268, CWD, b"d", 0)
    call(92, b"d", -1, 5)
    call(94, b"d", 0, -1)
    call(260, CWD, b"d", 0, 0, 0x100)
    call(76, b"d", 100)
    call(280, CWD, b"d", NULL, 0)
    call(280, CWD, b"d", packed("qqqq", 1000000000, 5, 0, 0x3fffffff), 0x100)
    call(280, CWD, b"d", packed("qqqq", 0, 0x3ffffffe, 1, 0), 0)
    call(235, b"d", packed("qqqq", 1000000000, 5, 2, 0))
    call(132, b"d", packed("qq", 1000000000, 5))
    for name in (b"d", b"e", b"f", b"t", b"n", b"m", b"k"):
        call(87, name)

def c_flock():
    fd = opened(b"file", 0o102, 0o600)
    for what in (2, 5, 8, 0, 99):
        call(73, fd, what)
    call(74, fd)
    call(75, fd)
    call(77, fd, 5)
    call(76, b"file", 7)
    call(285, fd, 1, 0, 10)
    call(285, fd, 0xff, 0, 10)
    call(221, fd, 0, 10, 3)
    call(187, fd, 0, 10)
    call(277, fd, 0, 10, 7)
    call(40, 1, fd, NULL, 0)
    call(40, -1, fd, packed("q", 1), 5)
    call(275, fd, NULL, -1, NULL, 5, 3)
    call(326, fd, packed("q", 3), -1, NULL, 5, 0)
    call(3, fd)

def c_xattr():
    call(85, b"file", 0o600)
    call(188, b"file", b"user.a", b"value", 5, 1)
    call(191, b"file", b"user.a", at(room(9)), 9)
    call(191, b"file", b"user.a", NULL, 0)
    call(191, b"file", b"user.none", at(room(9)), 9)
    call(194, b"file", at(room(99)), 99)
    call(197, b"file", b"user.a")

def c_mount():
    call(165, b"a", b"/nowhere", b"ext4", 1, b"data")
    call(165, b"a", b"/nowhere", NULL, 0x1000, NULL)
    call(165, b"a", b"/nowhere", NULL, 0xc0ed0021, NULL)
    call(166, b"/nowhere", 2)
    call(166, b"/nowhere", 0xff)
    call(155, b"/nowhere", b"/nowhere")
    call(428, CWD, b"/nowhere", 1)
    call(430, b"nofs", 1)
    call(442, CWD, b"/nowhere", 0, packed("QQQQ", 1, 2, 0, 0), 32)

def c_fork():
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    status = room(4)
    call(61, pid, at(status), 0, at(room(144)))
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), 9)
    call(61, pid, at(status), 0x40000000, NULL)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    call(247, 1, pid, at(room(128)), 4, at(room(144)))
    call(61, -1, at(status), 1, NULL)
    call(61, -1, NULL, 0xffffffff, NULL)
    call(247, 0, 0, at(room(128)), 5, NULL)
    call(56, 0x7eff, 0, 0, 0, 0)
    call(56, 0x10000000 | 99, 0, 0, 0, 0)
    call(435, packed("8Q", 0x100000004, 0, 0, 0, 17, 0, 0, 0), 64)
    call(435, BAD, 64)
    call(435, packed("8Q", 0, 0, 0, 0, 17, 0, 0, 0), 8)

def c_execve():
    call(59, b"/nowhere", strings(b"a", b"b c", b"x" * 50), strings(b"A=1", b"B=2"))
    call(59, b"/nowhere", strings(*[b"a"] * 40), strings(b"A=1"))
    call(59, b"/nowhere", NULL, NULL)
    call(59, b"/nowhere", BAD, BAD)
    call(59, b"/nowhere", strings(), strings())
    call(322, CWD, b"nowhere", strings(b"a"), strings(b"A=1"), 0x1100)

def c_identity():
    for number in (102, 104, 107, 108, 39, 110, 186, 111):
        call(number)
    call(118, at(room(4)), at(room(4)), at(room(4)))
    call(120, at(room(4)), at(room(4)), at(room(4)))
    call(117, -1, -1, -1)
    call(113, -1, -1)
    call(119, -1, 0, -1)
    call(105, 0)
    call(122, -1)
    call(115, 0, NULL)
    call(115, 64, at(room(256)))
    call(121, 0)
    call(124, 0)
    call(109, 0, 0)
    call(125, packed("Ii", 0x20080522, 0), at(room(24)))
    call(126, packed("Ii", 0x20080522, 1 << 22), packed("6I", 1, 2, 4, 0, 0, 1 << 31))

def c_prctl():
    call(157, 1, 9)
    call(157, 2, at(room(4)))
    call(157, 3)
    call(157, 4, 1)
    call(157, 15, b"name")
    call(157, 16, at(room(16)))
    call(157, 21)
    call(157, 22, 2, NULL)
    call(157, 23, 21)
    call(157, 24, 99)
    call(157, 27)
    call(157, 30)
    call(157, 36, 1)
    call(157, 37, at(room(4)))
    call(157, 38, 0, 0, 0, 0)
    call(157, 39, 0, 0, 0, 0)
    call(157, 47, 1, 5, 0, 0)
    call(157, 47, 4, 0, 0, 0)
    call(157, 999, 1, 2, 3, 4)
    call(158, 0x1003, at(room(8)))
    call(158, 0x3001, 5)
    call(158, 0x9999, 5)

def c_limits():
    call(97, 7, at(room(16)))
    call(160, 4, packed("QQ", 0, 1 << 62))
    call(160, 99, packed("QQ", 0, 1 << 62))
    call(302, 0, 3, NULL, at(room(16)))
    call(302, 0, 3, packed("QQ", 8192 * 1024, 0xffffffffffffffff), NULL)
    call(98, 0, at(room(144)))
    call(98, 0xffffffff, at(room(144)))
    call(98, 55, at(room(144)))
    call(140, 0, 0)
    call(141, 0, 0, 0)
    call(135, 0xffffffff)
    call(135, 0)

def c_threads():
    call(218, BAD)
    call(273, BAD, 24)
    call(334, BAD, 32, 0, 0x53053053)
    call(334, BAD, 32, 1, 0x53053053)
    call(24)
    call(203, 0, 128, packed("16Q", 1, *[0] * 15))
    call(145, 0)
    call(146, 1)
    call(143, 0, at(room(4)))
    call(148, 0, at(room(16)))
    call(309, at(room(4)), at(room(4)), NULL)
    word = packed("I", 5)
    call(202, word, 0, 4, NULL)
    call(202, word, 0x80, 4, packed("qq", 1, 2))
    call(202, word, 0x189, 4, NULL, NULL, -1)
    call(202, word, 0x89, 4, NULL, NULL, 3)
    call(202, word, 1, 4)
    call(202, word, 0x81, 1)
    call(202, word, 0x83, 1, 2, word)
    call(202, word, 0x84, 1, 2, word, 9)
    call(202, word, 7)
    call(202, word, 99, 1, 2, 3, 4)
    call(324, 0, 0)
    call(324, 8, 0)

def c_times():
    call(35, packed("qq", 0, 5), NULL)
    call(35, packed("qq", 0, 5), at(room(16)))
    call(35, packed("qq", 0, -5), at(room(16)))
    call(230, 1, 0, packed("qq", 0, 5), at(room(16)))
    call(230, 1, 1, packed("qq", 0, 5), NULL)
    call(230, 99, 7, packed("qq", 0, 5), NULL)
    call(229, 1, at(room(16)))
    call(229, 1, NULL)
    call(229, 77, at(room(16)))
    call(37, 0)
    call(38, 0, packed("qqqq", 0, 0, 0, 0), at(room(32)))
    call(36, 1, at(room(32)))
    call(222, 1, packed("Qii48x", 5, 10, 0), at(room(4)))
    call(222, 1, NULL, NULL)
    call(223, 0, 1, packed("qqqq", 0, 0, 0, 0), at(room(32)))
    call(224, 77, at(room(32)))
    call(226, 77)
    fd = call(283, 1, 0o2004000)
    call(286, fd, 1, packed("qqqq", 0, 0, 0, 1), at(room(32)))
    call(287, 99, at(room(32)))
    call(3, fd)
    call(227, 99, packed("qq", 0, 0))

def c_events():
    call(3, call(284, 5))
    call(3, call(290, 5, 0o2004001))
    call(3, call(289, -1, packed("Q", 2), 8, 0o2004000))
    fd = call(294, 0o2004000)
    call(254, fd, b".", 0xfff)
    call(254, fd, b".", 0xffffffff)
    call(255, fd, 1)
    call(255, fd, 77)
    call(3, fd)
    call(300, 0, 0)
    call(301, 99, 1, 2, CWD, b"/")

def c_system():
    call(63, at(room(400)))
    call(63, BAD)
    call(318, at(room(40)), 0, 1)
    call(318, BAD, 5, 3)
    call(170, b"x", -1)
    call(170, b"x" * 70, 70)
    call(103, 10, NULL, 0)
    call(169, 1, 2, 3, 4)
    call(313, -1, b"a=b", 3)
    call(176, b"nothing", 0o4000)

def c_seccomp():
    call(317, 1, 0, packed("H6xQ", 0, 0))
    call(317, 2, 0, packed("I", 0x7fff0000))
    call(317, 1, 0xff, NULL)
    call(317, 99, 0xff, 5)
    call(444, NULL, 0, 1)
    call(444, packed("Q", 0x1fff), 8, 9)
    call(445, -1, 1, packed("=Qi", 5, -1), 0)
    call(446, -1, 0)
    call(321, 99, BAD, 5)
    call(101, 0x4206, 1 << 22, 0, 1)
    call(101, 99, 1 << 22, 1, 2)
    call(101, 16, 1 << 22, 1, 2)
    call(101, 0x18, 1 << 22, 1, 9)
    call(272, 0)
    call(272, 0x80000000)
    call(308, -1, 0x40000000)
    call(434, 1 << 22, 0)
    call(438, -1, 5, 0)
    call(424, -1, 9, NULL, 0)
    call(310, 1 << 22, vectors(room(5)), 1, packed("QQ", 4096, 5), 1, 0)
    call(311, 1 << 22, vectors(b"hello"), 1, packed("QQ", 4096, 5), 1, 0)
    call(312, 1 << 22, 1 << 22, 2, 0, 0)

def c_ipc():
    id = call(29, 0, 4096, 0o1600)
    call(31, id, 0, NULL)
    call(30, 99999, NULL, 0o10000)
    call(67, BAD)
    semaphores = call(64, 0, 1, 0o2777)
    call(66, semaphores, 0, 0)
    call(65, 99999, packed("Hhh", 0, -1, 0o14000), 1)
    call(66, 99999, 0, 0)
    queue = call(68, 0, 0o600)
    call(71, queue, 0)
    call(71, 99999, 0)
    call(240, b"q", 0o102, 0o600, NULL)
    call(248, b"user", b"name", b"data", 4, -4)
    call(250, 0, -3, 0)
    call(250, 6, 77, 5, 6)

def c_unknown():
    call(1000, 1, 2, 3, 4, 5, 6)
    call(174, 1, 2, 3, 4)
    call(134, b"library")
    call(252, 1, 0, 0x4004)
    call(237, 1, 2, 3, 4, 5, 6)

CALLS = {name[2:]: value for name, value in sorted(globals().items()) if name.startswith("c_")}

if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print("\n".join(CALLS))
        sys.exit(0)
    for chosen in sys.argv[1:] or CALLS:
        call(1, -1, b"== " + chosen.encode(), 3 + len(chosen))
        CALLS[chosen]()
    call(1, -1, b"== end", 6)
