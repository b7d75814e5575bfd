//! Every attack that is tried, and the matrix that the threat model shows of them.

use std::fmt::Write;

/// Who tries what. All of it must be refused.
#[derive(Debug, Clone, Copy)]
pub struct Attack {
    /// Its name.
    pub id: &'static str,
    /// Who attacks.
    pub who: &'static str,
    /// What they try.
    pub what: &'static str,
}

const fn attack(id: &'static str, who: &'static str, what: &'static str) -> Attack {
    Attack { id, who, what }
}

/// A member whose token says `--role worker`.
const WORKER: &str = "member, role worker";
/// One of the default role.
const LOGIN: &str = "member, role login";
/// One that keeps a copy of an image, and has nothing of its job.
const PARTNER: &str = "partner";
/// One that an operator has removed.
const TURNED_OUT: &str = "member that was turned out";
/// A user of a member who has no part in the job.
const USER: &str = "user of a member";
const PAGE_USER: &str = "user of the coordinator's machine";

/// All of them, in the order in which the matrix shows them.
pub const ATTACKS: &[Attack] = &[
    attack("plain-coordinator", "stranger", "speak to the coordinator without TLS"),
    attack("plain-agent", "stranger", "speak to an agent without TLS"),
    attack("forged-line", "stranger", "write lines of their own into the coordinator's log"),
    attack(
        "foreign-member",
        "stranger",
        "show the coordinator a member's certificate of another authority",
    ),
    attack("foreign-peer", "stranger", "show an agent a member's certificate of another authority"),
    attack(
        "foreign-coordinator",
        "stranger",
        "show an agent a coordinator's certificate of another authority",
    ),
    attack("guessed-token", "stranger", "join with a token whose secret is guessed"),
    attack("used-token", "stranger", "join with a token that is used up"),
    attack(
        "orders-as-root",
        WORKER,
        "list, stop, checkpoint, attach to, restart and remove a job in root's name",
    ),
    attack("orders-as-owner", WORKER, "the same in the name of the job's user"),
    attack("runs-as-owner", WORKER, "run a command in the name of another user"),
    attack("removes-member", WORKER, "turn another member out"),
    attack("sends-away", WORKER, "have another machine leave"),
    attack("names-standby", WORKER, "have itself given the cluster's key"),
    attack("makes-token", WORKER, "make a token"),
    attack("reads-audit", WORKER, "read the audit log"),
    attack("key-unknown", WORKER, "log in as a user by a key of its own"),
    attack("key-of-another", WORKER, "log in as a user by a key of another user's"),
    attack(
        "key-elsewhere",
        WORKER,
        "log in by a signature for another member, account, user or time",
    ),
    attack("key-replayed", WORKER, "log in once more by a signature that has counted"),
    attack(
        "key-adds",
        WORKER,
        "have keys known and, by a login with a stolen key, keys, what others own, and what operators may",
    ),
    attack("login-claimed", WORKER, "order by a login that a user has at another member"),
    attack("key-huge", WORKER, "send keys and signatures of megabytes"),
    attack("key-flood", WORKER, "have so much to be signed that nobody else can log in"),
    attack("fetch-ungranted", WORKER, "fetch an image from its holder"),
    attack("fetch-forged", WORKER, "fetch an image with a grant that it has sealed itself"),
    attack("offer-ungranted", WORKER, "put an image of its own into the place of a job's"),
    attack("offer-forged", WORKER, "the same with a grant that it has sealed itself"),
    attack("commit-ungranted", WORKER, "have an image counted as committed"),
    attack("asks-for-key", WORKER, "have itself told the key of a job's images, in whoever's name"),
    attack("told-key", WORKER, "find such a key among the orders that it gets"),
    attack("poses-as-coordinator", WORKER, "pass itself off as the coordinator that carries on"),
    attack(
        "traffic-foreign",
        WORKER,
        "put packets that claim to be another machine's into the traffic of jobs that is encrypted",
    ),
    attack("traffic-elsewhere", WORKER, "have a member pass such packets on to another machine"),
    attack("traffic-to-agent", WORKER, "reach a port by such packets that is none of a job's"),
    attack("login-removes-member", LOGIN, "turn another member out, in root's name"),
    attack("login-sends-away", LOGIN, "have another machine leave, in root's name"),
    attack("login-names-standby", LOGIN, "have itself given the cluster's key, in root's name"),
    attack("login-makes-token", LOGIN, "make a token, in root's name"),
    attack(
        "login-for-named",
        LOGIN,
        "order in the name of a user whom a token has named for another member",
    ),
    attack(
        "reads-copy",
        PARTNER,
        "read the image that it keeps, as it lies or with keys of its own",
    ),
    attack("gone-coordinator", TURNED_OUT, "connect to the coordinator"),
    attack("gone-peer", TURNED_OUT, "connect to another member"),
    attack("gone-fetch", TURNED_OUT, "fetch an image over a connection that it had"),
    attack(
        "user-orders",
        USER,
        "see, stop, checkpoint, attach to, restart and remove another's job",
    ),
    attack(
        "user-reads",
        USER,
        "read another's output, verify, inspect and export another's images",
    ),
    attack("user-opens-images", USER, "open files of images and of the coordinator's folder"),
    attack("user-operates", USER, "turn members out, make tokens, read the audit log"),
    attack("user-shell", USER, "use ckptd rsh outside of a job"),
    attack(
        "page-looks",
        PAGE_USER,
        "look at the coordinator's page, its data, a log or the metrics without the token, or by another way of showing it",
    ),
    attack("page-opens-tokens", PAGE_USER, "open the files of the page's tokens"),
    attack(
        "page-changes",
        PAGE_USER,
        "change something through the page, by a token that was stolen",
    ),
    attack(
        "page-rebinds",
        "web site that a user opens",
        "reach the page under a name of its own, with what the browser knows",
    ),
    attack("job-operates", "job", "order from inside of a job what its user may not"),
    attack("job-leaves", "job", "run on another machine as anybody but its user"),
    attack("job-ends-agent", "job", "signal the agent, or read its memory"),
];

/// The table as the documentation has it.
pub fn matrix() -> String {
    let mut text = String::from(
        "<!-- Written by `attack --matrix`: every row is tried by tests/src/bin/attack. -->\n\n\
         | who | tries to |\n|---|---|\n",
    );
    for Attack { who, what, .. } in ATTACKS {
        // A String takes everything.
        let _ = writeln!(text, "| {who} | {what} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = ATTACKS.iter().map(|attack| attack.id).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
