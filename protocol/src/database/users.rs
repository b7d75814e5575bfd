//! Users and their groups.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::ask;

const PASSWD: &str = "/etc/passwd";
/// Where systemd-homed answers (varlink).
const HOMED: &str = "/run/systemd/userdb/io.systemd.Home";
const NSSWITCH: &str = "/etc/nsswitch.conf";
const GROUP: &str = "/etc/group";

/// An entry of passwd(5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Name.
    pub name: String,
    /// Number.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Home directory.
    pub home: PathBuf,
    /// Login shell.
    pub shell: PathBuf,
}

impl Account {
    /// The user with a number; None: this machine knows none.
    #[must_use]
    pub fn of_uid(uid: u32) -> Option<Self> {
        Self::find(&uid.to_string(), |account| account.uid == uid)
    }

    /// The user with a name; None: this machine knows none.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        // getent(1) would look for a number, or take it for an option.
        if name.starts_with('-') || name.bytes().all(|byte| byte.is_ascii_digit()) {
            return entries(&read(PASSWD)).find(|account| account.name == name);
        }
        Self::find(name, |account| account.name == name)
    }

    fn find(key: &str, wanted: impl Fn(&Self) -> bool) -> Option<Self> {
        entries(&read(PASSWD)).find(&wanted).or_else(|| {
            let answer = ask("getent", &["passwd", key]).ok()?;
            entries(&answer).find(wanted)
        })
    }

    /// All groups that the user is in, his own first, as getgrouplist(3) gives them.
    ///
    /// # Errors
    /// When neither id(1) nor /etc/group says.
    pub fn groups(&self) -> io::Result<Vec<u32>> {
        let told = ask("id", &["-G", "--", &self.name]);
        let told = told.ok().and_then(|line| {
            line.split_ascii_whitespace().map(|gid| gid.parse().ok()).collect::<Option<Vec<u32>>>()
        });
        let others = match told {
            Some(groups) => groups,
            None => memberships(&std::fs::read_to_string(GROUP)?, &self.name).collect(),
        };
        let others = others.into_iter().filter(|gid| *gid != self.gid);
        Ok(std::iter::once(self.gid).chain(others).collect())
    }
}

/// Name of a user, or his number in digits where he has no name.
#[must_use]
pub fn name_of(uid: u32) -> String {
    Account::of_uid(uid).map_or_else(|| uid.to_string(), |account| account.name)
}

/// The names of all users in /etc/passwd.
#[must_use]
pub fn all_in_passwd() -> BTreeSet<String> {
    entries(&read(PASSWD)).map(|account| account.name).collect()
}

/// Whether that file has all users of this machine who may have jobs (nsswitch.conf(5)).
#[must_use]
pub fn are_all_in_passwd() -> bool {
    asks_files_alone(&read(NSSWITCH), Path::new(HOMED).exists())
}

/// `homed`: whether systemd-homed has users of its own.
fn asks_files_alone(nsswitch: &str, homed: bool) -> bool {
    let line = nsswitch.lines().find_map(|line| line.trim().strip_prefix("passwd:"));
    // Without homed, systemd knows those beside that services are given while they run (nss-systemd(8)).
    let file = |word| word == "files" || (word == "systemd" && !homed);
    // Without a line the C library asks files alone (glibc 2.34 and newer), and musl knows nothing else.
    line.is_none_or(|line| line.split_ascii_whitespace().all(file))
}

/// Empty where there is none, as on Android.
fn read(path: &str) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    // The field that is for people may have any bytes.
    String::from_utf8_lossy(&bytes).into_owned()
}

fn entries(passwd: &str) -> impl Iterator<Item = Account> + '_ {
    passwd.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _password, uid, gid, _about, home, shell] = fields[..] else { return None };
        let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
        let shell = if shell.is_empty() { "/bin/sh" } else { shell };
        Some(Account { name: name.into(), uid, gid, home: home.into(), shell: shell.into() })
    })
}

fn memberships<'a>(group: &'a str, user: &'a str) -> impl Iterator<Item = u32> + 'a {
    group.lines().filter_map(move |line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [_name, _password, gid, members] = fields[..] else { return None };
        members.split(',').any(|member| member == user).then(|| gid.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_passwd_are_read() {
        let text = "root:x:0:0:root:/root:/bin/bash\n+::::::\nbroken\nu:x:7:8:A, B:/home/u:\nbig:x:4294967296:1:::\n";
        let found: Vec<Account> = entries(text).collect();
        let names: Vec<&str> = found.iter().map(|account| account.name.as_str()).collect();
        assert_eq!(names, ["root", "u"]);
        let u = &found[1];
        assert_eq!((u.uid, u.gid, u.home.to_str()), (7, 8, Some("/home/u")));
        assert_eq!(u.shell.to_str(), Some("/bin/sh"));
    }

    #[test]
    fn directory_services_are_noticed() {
        assert!(asks_files_alone("passwd:         files\ngroup: files ldap\n", true));
        assert!(asks_files_alone("passwd: files systemd\n", false));
        assert!(!asks_files_alone("passwd: files systemd\n", true));
        assert!(asks_files_alone("", false));
        for other in [" passwd: compat\n", "passwd: files [!UNAVAIL=return] sss"] {
            assert!(!asks_files_alone(other, false), "{other}");
        }
        assert!(all_in_passwd().contains("root"));
    }

    #[test]
    fn memberships_are_read() {
        let text = "root:x:0:\nvideo:x:44:ada,u\n+:::\nu:x:8:\nusers:x:100:u\nlike:x:9:uu\n";
        assert_eq!(memberships(text, "u").collect::<Vec<_>>(), [44, 100]);
    }

    #[test]
    fn the_superuser_is_known_by_name_and_number() {
        let root = Account::of_uid(0).unwrap();
        assert_eq!(Account::of_name(&root.name), Some(root.clone()));
        assert_eq!(root.groups().unwrap().first(), Some(&0));
        assert_eq!(name_of(0), root.name);
    }

    #[test]
    fn who_is_unknown_has_a_number_only() {
        assert_eq!(name_of(3_999_999_999), "3999999999");
        assert_eq!(Account::of_name("0"), None);
        assert_eq!(Account::of_name("--help"), None);
        assert_eq!(Account::of_name("no such user"), None);
    }
}
