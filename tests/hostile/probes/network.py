"""Reaching anything by network: the host itself, its neighbours, the cloud's metadata, or the kernel's own
socket families."""
import ctypes
import os
import socket
import struct

from kit import ABSENT, REFUSALS, Blocked, first_success, host, probe

UNREACHABLE = REFUSALS + ("ENETUNREACH", "EHOSTUNREACH", "ECONNREFUSED", "EADDRNOTAVAIL", "ENETDOWN", "EAFNOSUPPORT")
NO_FAMILY = REFUSALS + ("EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "EPROTOTYPE")


def connect(family, address, kind=socket.SOCK_STREAM):
    client = socket.socket(family, kind)
    client.settimeout(3)
    try:
        client.connect(address)
    except TimeoutError:
        raise Blocked("no answer from %r" % (address,)) from None
    return client


# --------------------------------------------------------------------------------------------------
# The host and what is beyond it

@probe(control="user", refused=UNREACHABLE)
def host_loopback():
    """127.0.0.1 on the host: databases and notebooks that ask for no password because they are local."""
    connect(socket.AF_INET, ("127.0.0.1", host.tcp4_port))
    return "connected to the victim's port %d" % host.tcp4_port


@probe(control="user", refused=UNREACHABLE)
def host_loopback_ipv6():
    """::1, the same service's other door."""
    if host.outside and not host.tcp6_port:
        return "the host has no IPv6"
    connect(socket.AF_INET6, ("::1", host.tcp6_port or 9))
    return "connected to the victim's port %d" % host.tcp6_port


@probe(control="user", refused=UNREACHABLE)
def host_loopback_udp():
    """A datagram needs no answer to have done its work; the suite looks whether one arrived."""
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.sendto(b"hutch-probe", ("127.0.0.1", host.udp_port))
    if host.outside:
        return "sent"
    raise Blocked("it stays in our own loopback")


@probe(control="user", refused=UNREACHABLE)
def host_abstract_socket():
    """Abstract sockets belong to the network namespace: X11, D-Bus and containerd have listened on such."""
    connect(socket.AF_UNIX, "\0" + host.abstract_name)
    return "connected to the victim's abstract socket"


@probe(control="user", refused=UNREACHABLE + ("EPERM", "EACCES"))
def host_abstract_datagram():
    """The same with datagrams, which Landlock scopes separately."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    client.connect("\0" + host.abstract_name + "-dgram")
    client.send(b"hutch-probe")
    return "sent to the victim's abstract socket"


@probe(why_no_control="not every machine has a metadata service", refused=UNREACHABLE)
def cloud_metadata():
    """169.254.169.254 hands out the machine's credentials in every large cloud."""
    connect(socket.AF_INET, ("169.254.169.254", 80))
    return "connected to 169.254.169.254"


@probe(why_no_control="not every machine has IPv6 metadata", refused=UNREACHABLE)
def cloud_metadata_ipv6():
    """fd00:ec2::254, the same by IPv6, and link-local all-nodes."""
    connect(socket.AF_INET6, ("fd00:ec2::254", 80))
    return "connected to fd00:ec2::254"


@probe(why_no_control="the machine may be offline", refused=UNREACHABLE)
def internet():
    """Any address of the internet, by number, so that no resolver is needed."""
    return first_success([
        lambda address=address: connect(socket.AF_INET, address) and "connected to %s:%d" % address
        for address in (("1.1.1.1", 443), ("8.8.8.8", 53), ("9.9.9.9", 53))])


@probe(why_no_control="the machine may be offline")
def resolve_name():
    """Names resolve by asking somebody: a DNS query is a way out for data."""
    try:
        answer = socket.getaddrinfo("example.com", 80)
    except socket.gaierror as error:
        raise Blocked("no answer: %s" % error) from None
    return "resolved to %r" % (answer[0][4],)


@probe(control="user", refused=UNREACHABLE)
def host_addresses():
    """The host's own addresses on its networks."""
    if not host.addresses:
        if host.outside:
            return "the host has no address but loopback"
        raise Blocked("the host has no address but loopback")
    return first_success([
        lambda address=address: connect(socket.AF_INET, (address, host.tcp_any_port)) and "connected to " + address
        for address in host.addresses])


@probe(control="user")
def interfaces():
    """Only loopback may be there."""
    names = sorted(name for _, name in socket.if_nameindex())
    if names in ([], ["lo"]):
        raise Blocked("interfaces: %r" % names)
    if host.outside and names:
        return "interfaces: %r" % names
    return "interfaces: %r" % names


@probe(why_no_control="hosts differ in their routes")
def routes():
    """The routing tables must be empty: no way to anywhere."""
    with open("/proc/net/route", encoding="ascii") as table:
        lines = table.readlines()[1:]
    if not lines:
        raise Blocked("no IPv4 route")
    return "route: " + lines[0].strip()


@probe(control="root", refused=REFUSALS + ("ENODEV",))
def bring_interface_up():
    """SIOCSIFFLAGS: change an interface. CAP_NET_ADMIN is what it takes."""
    import fcntl
    control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    request = struct.pack("=16sh22x", b"lo", 0x1 | 0x8 | 0x40)
    fcntl.ioctl(control, 0x8914, request)
    return "changed the flags of lo"


def netlink_request(message_type, flags, payload):
    """Sends one NETLINK_ROUTE request and raises the error that its acknowledgement carries."""
    NLM_F_REQUEST, NLM_F_ACK, NLMSG_ERROR = 1, 4, 2
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    channel.settimeout(5)
    channel.send(struct.pack("=IHHII", 16 + len(payload), message_type, flags | NLM_F_REQUEST | NLM_F_ACK, 1, 0) + payload)
    answer = channel.recv(65536)
    kind, code = struct.unpack_from("=H", answer, 4)[0], struct.unpack_from("=i", answer, 16)[0]
    if kind == NLMSG_ERROR and code != 0:
        raise OSError(-code, os.strerror(-code))


@probe(control="root")
def netlink_changes_interface():
    """Reading interfaces by NETLINK_ROUTE is what libc does; RTM_NEWLINK changes one."""
    index = socket.if_nametoindex("lo")
    netlink_request(16, 0, struct.pack("=BxHiII", 0, 0, index, 0x1, 0x1))
    return "set lo up by netlink"


@probe(control="root", refused=REFUSALS + ("EOPNOTSUPP",))
def netlink_new_interface():
    """RTM_NEWLINK makes an interface, and loads the module for its kind."""
    if host.outside:
        netlink_request(16, 0, struct.pack("=BxHiII", 0, 0, socket.if_nametoindex("lo"), 0x1, 0x1))
        return "may change interfaces"
    kind = struct.pack("=HH", 4 + 5, 1) + b"dummy" + b"\0" * 3
    netlink_request(16, 0x600, struct.pack("=BxHiII", 0, 0, 0, 0, 0) + struct.pack("=HH", 4 + len(kind), 18) + kind)
    return "made an interface"


@probe(control="root", refused=REFUSALS + ("EEXIST", "ENETDOWN"))
def netlink_traffic_control():
    """RTM_NEWQDISC: traffic control, the part of netlink with most holes."""
    if host.outside:
        netlink_request(16, 0, struct.pack("=BxHiII", 0, 0, socket.if_nametoindex("lo"), 0x1, 0x1))
        return "may change interfaces"
    kind = struct.pack("=HH", 4 + 5, 1) + b"pfifo"[:5] + b"\0" * 3
    netlink_request(36, 0x600, struct.pack("=BxHiIII", 0, 0, socket.if_nametoindex("lo"), 0, 0xFFFFFFFF, 0) + kind)
    return "made a queueing discipline"


@probe(control="root", refused=ABSENT + ("ENODEV", "ENXIO"))
def tunnel_device():
    """/dev/net/tun: a network interface of one's own."""
    path = "/dev/net/tun"
    if host.outside and not os.path.exists(path):
        return "this host has no tun device"
    os.close(os.open(path, os.O_RDWR))
    return "opened " + path


@probe(control="root")
def low_port():
    """Ports below 1024 say who a service is. In a namespace of our own nobody could connect, but
    CAP_NET_BIND_SERVICE is none of ours."""
    server = socket.socket(socket.AF_INET)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", 1013))
    return "bound port 1013"


@probe(control="root", refused=REFUSALS + ("EINVAL", "ENOPROTOOPT"))
def bind_to_device():
    """SO_MARK and SO_BINDTODEVICE steer packets past routing and firewall rules."""
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.setsockopt(socket.SOL_SOCKET, 36, struct.pack("=I", 1))
    return "set SO_MARK"


# --------------------------------------------------------------------------------------------------
# Socket families

def family_probe(name, family, kind, protocol, control, doc):
    def act():
        try:
            fd = socket.socket(family, kind, protocol)
        except OSError as error:
            if host.outside and error.errno in (93, 94, 97, 19):
                return "this host's kernel lacks it"
            raise
        return "made a socket: %r" % (fd,)
    act.__name__ = "socket_" + name
    act.__doc__ = doc
    act.__module__ = __name__
    probe(control=control, refused=NO_FAMILY)(act)


for _row in (
        ("packet", 17, socket.SOCK_RAW, 0x0300, "root", "AF_PACKET: every frame of an interface, and many past exploits."),
        ("packet_dgram", 17, socket.SOCK_DGRAM, 0, "root", "AF_PACKET without headers."),
        ("raw_icmp", 2, socket.SOCK_RAW, 1, "root", "Raw IPv4: packets with any header."),
        ("raw_ipv6", 10, socket.SOCK_RAW, 58, "root", "Raw IPv6, likewise."),
        ("vsock", 40, socket.SOCK_STREAM, 0, "user", "AF_VSOCK talks to the hypervisor past every network namespace."),
        ("alg", 38, socket.SOCK_SEQPACKET, 0, "user", "AF_ALG: the kernel's crypto code, a favourite of fuzzers."),
        ("netlink_audit", 16, socket.SOCK_RAW, 9, "user", "NETLINK_AUDIT: the host's audit log."),
        ("netlink_netfilter", 16, socket.SOCK_RAW, 12, "user", "NETLINK_NETFILTER: nf_tables, the door of many exploits."),
        ("netlink_uevent", 16, socket.SOCK_RAW, 15, "user", "NETLINK_KOBJECT_UEVENT: devices coming and going."),
        ("netlink_generic", 16, socket.SOCK_RAW, 16, "user", "NETLINK_GENERIC: a bus for dozens of subsystems."),
        ("netlink_diag", 16, socket.SOCK_RAW, 4, "user", "NETLINK_SOCK_DIAG: who talks to whom."),
        ("xdp", 44, socket.SOCK_RAW, 0, "root", "AF_XDP: packets by shared memory."),
        ("can", 29, socket.SOCK_RAW, 1, "user", "AF_CAN: cars, and an autoloaded module."),
        ("tipc", 30, socket.SOCK_RDM, 0, "user", "AF_TIPC: a cluster protocol with a remote hole in 2022."),
        ("key", 15, socket.SOCK_RAW, 2, "root", "AF_KEY: IPsec keys."),
        ("bluetooth", 31, socket.SOCK_RAW, 1, "user", "AF_BLUETOOTH: radio, by an autoloaded module."),
        ("rds", 21, socket.SOCK_SEQPACKET, 0, "user", "AF_RDS: an autoloaded module with a long list of holes."),
        ("kcm", 41, socket.SOCK_DGRAM, 0, "user", "AF_KCM: message framing in the kernel."),
        ("smc", 43, socket.SOCK_STREAM, 0, "user", "AF_SMC: sockets over RDMA."),
        ("qipcrtr", 42, socket.SOCK_DGRAM, 0, "user", "AF_QIPCRTR: modems of phones."),
        ("ax25", 3, socket.SOCK_SEQPACKET, 0, "user", "AF_AX25: amateur radio."),
        ("appletalk", 5, socket.SOCK_DGRAM, 0, "user", "AF_APPLETALK: the last century."),
        ("x25", 9, socket.SOCK_SEQPACKET, 0, "user", "AF_X25: the same."),
        ("llc", 26, socket.SOCK_DGRAM, 0, "user", "AF_LLC: 802.2."),
        ("pppox", 24, socket.SOCK_STREAM, 0, "user", "AF_PPPOX: PPP tunnels."),
        ("phonet", 35, socket.SOCK_DGRAM, 0, "user", "AF_PHONET: another phone's modem."),
        ("ieee802154", 36, socket.SOCK_DGRAM, 0, "user", "AF_IEEE802154: sensor radios."),
        ("nfc", 39, socket.SOCK_SEQPACKET, 1, "user", "AF_NFC: contactless cards."),
        ("sctp", 2, socket.SOCK_STREAM, 132, "user", "SCTP over IPv4: a protocol module of its own size."),
        ("mptcp", 2, socket.SOCK_STREAM, 262, "user", "MPTCP over IPv4."),
        ("dccp", 2, 6, 33, "user", "DCCP over IPv4: autoloaded, and a privilege escalation in 2017.")):
    family_probe(*_row)


@probe(control="user", refused=NO_FAMILY)
def socketpair_vsock():
    """socketpair(2) is a second way to make a socket of a family."""
    fds = (ctypes.c_int * 2)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.socketpair(16, socket.SOCK_RAW, 0, fds) == -1:
        code = ctypes.get_errno()
        if host.outside and code == 95:
            return "the kernel looked (netlink has no pairs)"
        if code == 95:
            return "the kernel looked at the family"
        raise OSError(code, os.strerror(code))
    return "made a pair"
