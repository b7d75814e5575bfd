//! `ckptd login` and `ckptd logout`: who somebody is on a member that does not speak for them.
//!
//! - `signing`: what ssh-keygen does for it.

mod signing;

use super::{Context, print, print_json};
use crate::cli::{ListArguments, LoginArguments, LogoutArguments};
use crate::client::link::{Link, LinkError};
use crate::client::refusal::{refusal, unexpected};
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::tables::{printable, table};
use crate::text::utc;
use protocol::cluster::client::{Answer, Ask};
use protocol::cluster::login::{ShownKey, ShownLogin, Statement};
use protocol::database::users::name_of;
use protocol::keys::{MAX_LINE, UserKey};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

const WHAT: &str = "log in";

/// `ckptd login`.
pub fn perform(context: &Context, arguments: LoginArguments) -> Result<(), Failure> {
    let LoginArguments { user, key, valid, status, keys, add_key, remove_key, list, .. } =
        &arguments;
    if *status {
        return show_logins(&context.need_cluster("tell who is logged in")?, *list);
    }
    if *keys {
        let cluster = of_keys(context, &arguments, "list the keys")?;
        return show_keys(&cluster, user.clone(), *list);
    }
    if let Some(file) = add_key {
        let what = "add a key";
        let key = read_key(file).map_err(|cause| Failure::of(what, cause))?.line();
        let ask = Ask::AddKey { user: user.clone(), key };
        return of_keys(context, &arguments, what)?.order(what, &ask);
    }
    if let Some(fingerprint) = remove_key {
        let what = "remove a key";
        let (user, fingerprint) = (user.clone(), fingerprint.clone());
        let ask = Ask::RemoveKey { user, fingerprint };
        return of_keys(context, &arguments, what)?.order(what, &ask);
    }
    let cluster = context.need_cluster(WHAT)?;
    let user = user.clone().unwrap_or_else(|| name_of(account()));
    log_in(&cluster, &user, key.as_deref(), valid.as_secs())
}

/// `ckptd logout`.
pub fn end(context: &Context, arguments: &LogoutArguments) -> Result<(), Failure> {
    let what = "log out";
    context.need_cluster(what)?.order(what, &Ask::Logout { all: arguments.all })
}

/// The account whose command this is, as the other side of a socket sees it.
fn account() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// Where keys are ordered: at the coordinator's own socket, if it is this machine's.
fn of_keys(context: &Context, arguments: &LoginArguments, what: &str) -> Result<Cluster, Failure> {
    let state = &arguments.state;
    match Cluster::of_coordinator(&context.coordinator(state.clone())) {
        Err(error) if state.is_some() => Err(error),
        // It knows who its users are, whoever they are.
        Err(_) => context.need_cluster(what),
        Ok(own) => Ok(own),
    }
}

/// Reads a key, so that a private one never leaves this process.
fn read_key(file: &Path) -> Result<UserKey, String> {
    let read = || -> io::Result<String> {
        let mut text = String::new();
        let source: Box<dyn Read> = match file == Path::new("-") {
            true => Box::new(io::stdin()),
            false => Box::new(File::open(file)?),
        };
        // A private key of RSA is longer than any public one, and is to be told apart.
        source.take(4 * MAX_LINE as u64).read_to_string(&mut text)?;
        Ok(text)
    };
    let at = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let text = read().map_err(|error| at(&error))?;
    UserKey::parse(&text).map_err(|error| at(&error))
}

fn log_in(cluster: &Cluster, user: &str, key: Option<&Path>, valid_s: u64) -> Result<(), Failure> {
    let key = match key {
        Some(key) => key.to_owned(),
        None => signing::usual_key().map_err(|error| Failure::of(WHAT, error))?,
    };
    let failed = |error: LinkError| Failure::of(WHAT, error);
    let ask = Ask::Login { user: user.to_owned(), valid_s };
    let mut link = cluster.open(&ask).map_err(failed)?;
    let statement = match next(&mut link)? {
        Answer::Challenge { statement } => *statement,
        other => return Err(unexpected(WHAT, &other)),
    };
    check(&statement, user)?;
    let signed = signing::sign(&key, &statement.text());
    let signature = signed.map_err(|error| Failure::of(WHAT, error))?;
    link.send(&Ask::Prove { signature }).map_err(failed)?;
    match next(&mut link)? {
        Answer::Done { .. } => {
            eprintln!(
                "ckptd: logged in as {user} on {} until {}; 'ckptd logout' ends it",
                statement.member,
                utc(statement.until_ms)
            );
            Ok(())
        }
        other => Err(unexpected(WHAT, &other)),
    }
}

fn next(link: &mut Link) -> Result<Answer, Failure> {
    match link.next().map_err(|error| Failure::of(WHAT, error))? {
        Answer::Failed { reason, status } => Err(refusal(WHAT, reason, status)),
        answer => Ok(answer),
    }
}

/// A user signs what was asked for, and nothing that a machine has put into it.
fn check(statement: &Statement, user: &str) -> Result<(), Failure> {
    let asked = statement.user == user && statement.account == account();
    match asked && statement.is_plain() {
        true => Ok(()),
        false => {
            let cause = format!(
                "what was to be signed is not what was asked for: {}",
                printable(&statement.text())
            );
            Err(Failure::of(WHAT, cause))
        }
    }
}

fn show_logins(cluster: &Cluster, list: ListArguments) -> Result<(), Failure> {
    let what = "tell who is logged in";
    let value = cluster.listing(what, &Ask::Logins)?;
    if list.json {
        return print_json(&value);
    }
    let logins: Vec<ShownLogin> =
        protocol::json::of_value(&value).map_err(|error| Failure::of(what, error))?;
    let heading = ["USER", "MEMBER", "ACCOUNT", "UNTIL", "KEY"].map(str::to_owned).to_vec();
    let rows = logins.iter().map(|login| {
        let here = if login.here { " (this one)" } else { "" };
        let account = format!("{}{here}", login.account);
        let member = login.member.to_string();
        let cells = [&login.user, &member, &account, &utc(login.until_ms), &login.key];
        cells.map(|cell| printable(cell)).to_vec()
    });
    print(&table(&std::iter::once(heading).chain(rows).collect::<Vec<_>>()))
}

fn show_keys(cluster: &Cluster, user: Option<String>, list: ListArguments) -> Result<(), Failure> {
    let what = "list the keys";
    let value = cluster.listing(what, &Ask::Keys { user })?;
    if list.json {
        return print_json(&value);
    }
    let keys: Vec<ShownKey> =
        protocol::json::of_value(&value).map_err(|error| Failure::of(what, error))?;
    let heading = ["USER", "KIND", "FINGERPRINT", "CAME BY", "ADDED", "COMMENT"];
    let rows = keys.iter().map(|key| {
        let through =
            key.through.as_ref().map_or_else(|| "coordinator".to_owned(), ToString::to_string);
        let counts = if key.counts { "" } else { " (does not count)" };
        let through = format!("{through}{counts}");
        let added = utc(key.added_ms);
        let cells = [&key.user, &key.kind, &key.fingerprint, &through, &added, &key.comment];
        cells.map(|cell| printable(cell)).to_vec()
    });
    let heading = heading.map(str::to_owned).to_vec();
    print(&table(&std::iter::once(heading).chain(rows).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_key_is_not_sent() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("id");
        let private = format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{}", "b3B\n".repeat(2000));
        std::fs::write(&file, private).unwrap();
        let error = read_key(&file).unwrap_err();
        assert!(error.contains("private key"), "{error}");
        let none = read_key(&dir.path().join("nothing")).unwrap_err();
        assert!(none.contains("No such file"), "{none}");
    }

    #[test]
    fn what_was_not_asked_for_is_not_signed() {
        let statement = Statement {
            cluster: Default::default(),
            member: "desk".parse().unwrap(),
            member_key: Default::default(),
            account: account(),
            user: "alice".to_owned(),
            until_ms: 5,
            nonce: "00".to_owned(),
        };
        check(&statement, "alice").unwrap();
        check(&statement, "bob").unwrap_err();
        let other = Statement { account: account().wrapping_add(1), ..statement.clone() };
        check(&other, "alice").unwrap_err();
        let hidden = Statement { nonce: "0\nuser bob".to_owned(), ..statement };
        check(&hidden, "alice").unwrap_err();
    }
}
