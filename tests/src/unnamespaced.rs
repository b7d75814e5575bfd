//! Jobs without namespaces: how they are asked for, and the conformance programs that can't do without.

use crate::account::Account;
use crate::scenario::Mode;

/// Where a job's processes get their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Numbers {
    /// In namespaces of the job's own.
    #[default]
    Own,
    /// Among all others of the machine, the same ones again where they can be had (`CKPTD_NAMESPACES=none`).
    None,
    /// Among all others, new ones at each restart (`CKPTD_NUMBERS=new`).
    New,
}

impl Numbers {
    /// What tells ckptd so.
    pub fn environment(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Numbers::Own => &[],
            Numbers::None => &[("CKPTD_NAMESPACES", "none")],
            Numbers::New => &[("CKPTD_NAMESPACES", "none"), ("CKPTD_NUMBERS", "new")],
        }
    }

    /// What this program's own environment says of the jobs of agents that it starts.
    pub fn of_environment() -> Self {
        let is = |name: &str, value: &str| std::env::var_os(name).is_some_and(|set| set == value);
        match (is("CKPTD_NAMESPACES", "none"), is("CKPTD_NUMBERS", "new")) {
            (false, _) => Numbers::Own,
            (true, false) => Numbers::None,
            (true, true) => Numbers::New,
        }
    }

    /// A short name, for listings and folders.
    pub fn name(self) -> &'static str {
        match self {
            Numbers::Own => "",
            Numbers::None => " without-namespaces",
            Numbers::New => " renumbered",
        }
    }

    /// Why a program of an account can't pass like this.
    pub fn excuse(self, program: &str, mode: Mode, account: Account) -> Option<&'static str> {
        let restarted = matches!(mode, Mode::Restart | Mode::Three);
        let find = |list: &[Excuse]| {
            list.iter().find(|(_, names)| names.contains(&program)).map(|(why, _)| *why)
        };
        match self {
            // It has none before the restart.
            Numbers::Own if mode == Mode::Adopt => find(NEED_NAMESPACES)
                .or_else(|| find(NEED_THE_START))
                .or_else(|| find(NEED_USERS).filter(|_| account == Account::User))
                .or_else(|| find(NEED_RIGHTS).filter(|_| account == Account::User)),
            Numbers::Own => None,
            Numbers::None | Numbers::New if mode == Mode::Rehearse => {
                Some("a restart can be rehearsed only in namespaces")
            }
            Numbers::None | Numbers::New
                if account == Account::User && find(NEED_RIGHTS).is_some() =>
            {
                find(NEED_RIGHTS)
            }
            Numbers::None | Numbers::New if restarted => find(NEED_NAMESPACES)
                .or_else(|| find(NEED_CLOCKS))
                .or_else(|| find(NEED_PRIVILEGE).filter(|_| account == Account::User))
                .or_else(|| find(NEED_NUMBERS).filter(|_| self == Numbers::New)),
            Numbers::None | Numbers::New => find(NEED_NAMESPACES),
        }
    }
}

/// Why, and which.
type Excuse = (&'static str, &'static [&'static str]);

/// Programs about what a job has only if ckptd has started it.
const NEED_THE_START: &[Excuse] = &[
    (
        "a folder of temporary files is made for jobs that ckptd starts",
        &["busyfiles", "folderattributes", "temporaryfolder"],
    ),
    ("a restart's first process is the init's child, not a stranger's", &["tree"]),
    ("it is not adopted in the first place", &["traced"]),
    ("control groups of its first process are those of the job as a whole", &["controlgroups"]),
    (
        "nobody can tell whose orphans are when the makers of their session and group have ended",
        &["deadleader"],
    ),
];

/// Programs of an ordinary user's that name other users of the machine, of whom the namespace of a restarted job has none.
const NEED_USERS: &[Excuse] =
    &[("an access list for another user can't be made again, which is told", &["fileattributes"])];

/// Programs of an ordinary user's that need rights which the user has in namespaces of the job's own alone.
const NEED_RIGHTS: &[Excuse] = &[
    ("a user may make no network before the processes that are in it", &["networksockets"]),
    (
        "what is not dumpable can be looked into in a user namespace of the job's own alone",
        &["undumpable", "undumpablepids", "undumpablerefused", "undumpablesleeps"],
    ),
];

/// Programs that need a namespace of the job's own, whatever their processes' numbers are.
const NEED_NAMESPACES: &[Excuse] = &[
    (
        "SysV IPC is the machine's, and is refused",
        &["hugesegment", "ipcnamespace", "ipcnumbers", "sysvshm", "sysvsem", "sysvqueue"],
    ),
    (
        "POSIX message queues are the machine's, and are refused",
        &["ipcqueuegone", "mqnotify", "mqnotifyfull", "mqnotifythread", "mqueue", "oddnames"],
    ),
    ("memory that processes share (CLONE_VM) is refused there", &["memorysharers"]),
    ("mounts are the machine's, where others execute programs", &["fanotifymount"]),
    (
        "PID namespaces within the machine's are refused",
        &[
            "pidnamespace",
            "pidnamespaceentered",
            "pidnamespacefile",
            "pidnamespaceproc",
            "pidnamespaceuser",
        ],
    ),
];

/// Programs that expect clocks to go on where they were, which is the time namespace's doing.
const NEED_CLOCKS: &[Excuse] = &[(
    "CLOCK_MONOTONIC goes on with the machine while the job is not there",
    &["clocks", "ownclocks"],
)];

/// Programs that remember numbers of processes or threads over a restart.
const NEED_NUMBERS: &[Excuse] = &[
    (
        "waits for a child by its number",
        &[
            "boundholders",
            "boundmount",
            "bpfmaps",
            "busystreams",
            "cowfork",
            "changeduser",
            "chroot",
            "clocksforchildren",
            "cutshort",
            "container",
            "controlgroups",
            "deletedfile",
            "demandend",
            "demandexec",
            "devshm",
            "epoll",
            "endedleader",
            "eventfd",
            "fifo",
            "fileshared",
            "flockholder",
            "hugefile",
            "hugepages",
            "hugeprivate",
            "hugeshared",
            "ipcinside",
            "ipcmessages",
            "ipcnested",
            "ipcsegments",
            "ipcsemaphores",
            "leaderends",
            "lease",
            "limitsfull",
            "localdescriptors",
            "lockedlater",
            "loginuid",
            "memfd",
            "mountedfiles",
            "namespacefd",
            "namespacesown",
            "nestedusers",
            "networksockets",
            "ownclocks",
            "ownnamespaces",
            "pipe",
            "pipeend",
            "pivotroot",
            "privateunheld",
            "privileges",
            "programgone",
            "recordlocks",
            "removedcwd",
            "robust",
            "seccompfilter",
            "seccompstrict",
            "semaphore",
            "sharedanon",
            "sharedcwd",
            "sharedfile",
            "sharedfiles",
            "sharedmutex",
            "sleepscontinued",
            "stoppednested",
            "stoppedtwice",
            "tcp4",
            "tcp6",
            "tcpconnecting",
            "tcppending",
            "tcppendingbytes",
            "tcpshutfull",
            "undumpable",
            "undumpablesleeps",
            "unixabstract",
            "unixpair",
            "unixpath",
            "unixcredentials",
            "unixpeer",
            "uringshared",
            "uringsingle",
            "usernamespace",
            "utsnamespace",
            "vfork",
            "vmaname",
            "withdrawnplace",
            "withdrawnrights",
            "zombie",
        ],
    ),
    (
        "waits for a child by its number, which may be there at the moment",
        &["busyfork", "writtenpages"],
    ),
    ("sends a signal to a process by its number", &["signalepoll", "signalmoved", "tcpanswered"]),
    (
        "compares its own number, or a relative's, with that of before",
        &[
            "controlterminal",
            "deadleader",
            "orphan",
            "session",
            "sigpending",
            "threadleader",
            "threads",
            "tree",
        ],
    ),
];

/// Programs that look at what only privilege over the machine can put back.
const NEED_PRIVILEGE: &[Excuse] = &[
    (
        "reads the path of its program, which without privilege stays ckptd's",
        &["cmdline", "programgone"],
    ),
    ("a peer's number is one that has to be asked for", &["unixcredentials", "unixpeer"]),
    (
        "threads in a user namespace of their own can't ask for numbers, and others of the machine may be quicker",
        &["usernamespace"],
    ),
];
