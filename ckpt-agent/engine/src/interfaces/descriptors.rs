//! Kinds of descriptors, as /proc/PID/fd shows them.

use super::Fate::{Kept, Refused};
use super::Row;

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    ("regular files, directories, O_PATH", Kept, ""),
    ("deleted files, files of O_TMPFILE, memfd_create(2)", Kept, "the content travels with the image"),
    ("memfd_secret(2)", Refused, ""),
    ("pipes, FIFOs", Kept, "with their content"),
    ("pseudoterminals", Kept, "with their content"),
    ("terminals of the machine's own", Refused, "but for the job's own input and output"),
    ("/dev/null, zero, full, random, urandom", Kept, ""),
    ("other devices, /dev/kvm and /dev/fuse among them", Refused, ""),
    ("eventfd(2), signalfd(2), timerfd_create(2)", Kept, ""),
    ("epoll_create(2)", Kept, ""),
    ("inotify_init(2)", Kept, "with events that are not read yet"),
    ("fanotify_init(2)", Kept, "refused for permission events, FAN_REPORT_MNT and, for the moment, with events that are not read yet"),
    ("pidfd_open(2), CLONE_PIDFD", Kept, "of processes of the job and of its init"),
    ("userfaultfd(2)", Kept, "see Limits"),
    ("io_uring_setup(2)", Kept, "with nothing in flight; see Limits"),
    ("perf_event_open(2)", Refused, "the kernel does not tell what they count"),
    ("bpf(2): maps", Kept, "of root's jobs: arrays, hashes and tries; see Limits"),
    ("bpf(2): programs, links, BTF", Refused, ""),
    ("landlock_create_ruleset(2)", Refused, ""),
    ("seccomp(2): SECCOMP_FILTER_FLAG_NEW_LISTENER", Refused, ""),
    ("fsopen(2), fspick(2), fsmount(2), open_tree(2)", Refused, ""),
    ("mq_open(3)", Kept, "with messages; registrations of mq_notify(3) by a signal or by nothing, of a queue without messages"),
    ("files of /proc and /sys", Kept, ""),
    ("namespaces (/proc/PID/ns)", Kept, "in which a process of the job is"),
    ("files of hugetlbfs, MFD_HUGETLB", Kept, "the content travels with the image"),
    ("files on NFS, Lustre, overlayfs, FUSE", Kept, "by their path; silly renames travel with the image"),
    ("TCP, UDP, UDP-Lite, Unix sockets", Kept, "with in-flight data"),
    ("raw, ICMP, packet, netlink sockets", Kept, "with nothing unread; see Limits"),
    ("Multipath TCP", Kept, "sockets that listen; others are refused"),
    ("VSOCK, XDP, Bluetooth, CAN, AF_ALG, SCTP, TIPC, RDS, SMC, Key, KCM, LLC, NFC, IEEE 802.15.4 and other families", Refused, "each by its name"),
];
