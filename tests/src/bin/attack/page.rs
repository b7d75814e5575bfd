//! The coordinator's page: other users of its machine can connect, and sites elsewhere can have a browser of it do so.

use ckptd_tests::cluster::ckptd::Ckptd;
use ckptd_tests::job::Failure;

use super::local::as_user;
use super::outcome::{Line, Outcome, worst};

/// The page's port.
pub const PORT: &str = "7071";
/// A user of the coordinator's machine.
const OTHER: &str = "1";
/// What is there.
const PATHS: [&str; 5] = ["/", "/data", "/events", "/log?job=hers", "/metrics"];

/// What they may not.
pub fn attacks(ckptd: &Ckptd) -> Result<Vec<Line>, Failure> {
    let folder = ckptd.coordinator_node().must_run(&["sh", "-c", "echo $CKPTD_DIR/coordinator"])?;
    let token = format!("{}/http.token", folder.trim());
    let secret = ckptd.coordinator_node().must_run(&["cat", &token])?;
    let bearer = format!("Authorization: Bearer {}", secret.trim());
    let guesses = [String::new(), format!("Authorization: Bearer {}", "0".repeat(64))];
    let guesses = guesses.into_iter().chain([
        format!("Cookie: {}={}", cookie_name(ckptd)?, secret.trim()),
        format!("Authorization: Basic {}", secret.trim()),
    ]);
    let mut looks = Vec::new();
    for guess in guesses {
        for path in PATHS {
            looks.push(asks(ckptd, ("GET", path), "localhost", &guess)?);
        }
    }
    let mut opens = Vec::new();
    for file in ["http.token", "metrics.token"] {
        let path = format!("{}/{file}", folder.trim());
        let said = ckptd.coordinator_node().run(&as_user(OTHER, &["cat", &path]), &[])?;
        opens.push(match said.status {
            0 => Outcome::Succeeded(format!("{file} was read")),
            _ => Outcome::Refused(said.stderr.trim().to_owned()),
        });
    }
    let mut rebinds = Vec::new();
    for host in ["evil.example", "evil.example:7071", "localhost.evil.example", "10.77.0.10:7071"] {
        for path in PATHS {
            rebinds.push(asks(ckptd, ("GET", path), host, &bearer)?);
        }
    }
    let mut changes = Vec::new();
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        for path in PATHS {
            changes.push(asks(ckptd, (method, path), "localhost", &bearer)?);
        }
    }
    changes.push(asks(ckptd, ("POST", "/order"), "localhost", &bearer)?);
    Ok(vec![
        Line::new("page-looks", worst(looks)),
        Line::new("page-opens-tokens", worst(opens)),
        Line::new("page-rebinds", worst(rebinds)),
        Line::new("page-changes", worst(changes)),
    ])
}

/// What the cookie is called that a browser gets for a login.
fn cookie_name(ckptd: &Ckptd) -> Result<String, Failure> {
    let address = ckptd.coordinator_node().must_run(&["ckptd", "page"])?;
    let login = address.trim().rsplit('/').next().unwrap_or_default();
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{PORT}; printf 'GET /{login} HTTP/1.1\\r\\nHost: localhost\\r\\n\
         Connection: close\\r\\n\\r\\n' >&3; cat <&3"
    );
    let said = ckptd.coordinator_node().must_run(&["bash", "-c", &script])?;
    let cookie = said.lines().find_map(|line| line.strip_prefix("set-cookie: "));
    let name = cookie.and_then(|cookie| cookie.split('=').next()).map(str::to_owned);
    name.ok_or_else(|| Failure(format!("a login was answered by {said}")))
}

/// Whether a request comes to something: whatever is refused has a status of its own.
fn asks(
    ckptd: &Ckptd,
    (method, path): (&str, &str),
    host: &str,
    header: &str,
) -> Result<Outcome, Failure> {
    let line = if header.is_empty() { String::new() } else { format!("{header}\\r\\n") };
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{PORT}; printf '{method} {path} HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: \
         close\\r\\n{line}\\r\\n' >&3; head -n 1 <&3"
    );
    let said = ckptd.coordinator_node().run(&as_user(OTHER, &["bash", "-c", &script]), &[])?;
    let status = said.stdout.split(' ').nth(1).and_then(|status| status.parse().ok());
    let said = said.stdout.trim().to_owned();
    Ok(match status {
        Some(400..500_u16) => Outcome::Refused(said),
        Some(_) => Outcome::Succeeded(format!("{method} {path} of {host}: {said}")),
        None => Outcome::NotTried(format!("no answer: {said}")),
    })
}
