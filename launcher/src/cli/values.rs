//! Addresses, times and the like, as people write them.

use protocol::cluster::NodeName;
use protocol::cluster::baseline::Baseline;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An address with or without a port.
pub(super) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let default = protocol::transport::DEFAULT_PORT;
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok((address, default).into());
    }
    let port = text.strip_prefix(':').and_then(|port| port.parse::<u16>().ok());
    port.map(|port| (Ipv4Addr::UNSPECIFIED, port).into())
        .ok_or_else(|| "neither ADDRESS nor ADDRESS:PORT".to_owned())
}

/// The port of a coordinator's page, for who names none.
const PAGE_PORT: u16 = 7071;

/// The address of a page: of this machine, where only a port is given.
pub(super) fn page_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok((address, PAGE_PORT).into());
    }
    let port = text.strip_prefix(':').unwrap_or(text).parse::<u16>().ok();
    port.map(|port| (Ipv4Addr::LOCALHOST, port).into())
        .ok_or_else(|| "neither PORT nor ADDRESS:PORT".to_owned())
}

/// The longest time: a year. The sum with any time of day stays in range.
const YEAR: Duration = Duration::from_secs(31_536_000);
const NO_TIME: &str = "not a time, as in 90, 90s, 15m, 1h30m or 2d";

/// A time as people write it: 90, 0.5, 90s, 500ms, 15m, 1h30m, 2d.
fn time(text: &str) -> Result<Duration, String> {
    let span = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|_| NO_TIME.to_owned()),
        // Months, to those who know; to all others they look like minutes.
        Err(_) if text.contains('M') => Err("M is no unit: m is for minutes".to_owned()),
        Err(_) => humantime::parse_duration(text).map_err(|_| NO_TIME.to_owned()),
    }?;
    if span > YEAR { Err("must be a year at most".to_owned()) } else { Ok(span) }
}

/// The same, a second or more.
pub(super) fn time_span(text: &str) -> Result<Duration, String> {
    match time(text)? {
        span if span < Duration::from_secs(1) => Err("must be a second at least".to_owned()),
        span => Ok(span),
    }
}

/// The same, or nothing at all.
pub(super) fn time_or_none(text: &str) -> Result<Duration, String> {
    match time(text)? {
        Duration::ZERO => Ok(Duration::ZERO),
        _ => time_span(text),
    }
}

/// A moment that is over: so long ago, or a date and time (UTC, RFC 3339). In milliseconds since 1970 UTC.
pub(super) fn moment(text: &str) -> Result<u64, String> {
    let at = match humantime::parse_rfc3339_weak(text) {
        Ok(at) => at,
        Err(_) => {
            let ago = time(text).map_err(|error| match error.as_str() {
                NO_TIME => format!("{NO_TIME}, nor as in 2026-11-28T15:04:05Z"),
                _ => error,
            })?;
            SystemTime::now().checked_sub(ago).unwrap_or(UNIX_EPOCH)
        }
    };
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).map_err(|_| NO_TIME.to_owned())
}

/// A time in seconds and parts of them.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    time(text).map(|span| span.as_secs_f64())
}

/// How long a login may hold.
pub(super) fn login_span(text: &str) -> Result<Duration, String> {
    let span = time_span(text)?;
    match span.as_secs() <= protocol::cluster::login::MAX_VALID_S {
        true => Ok(span),
        false => Err("must be 7d at most".to_owned()),
    }
}

/// The name of a user, as Linux takes it (useradd(8)).
pub(super) fn user_name(text: &str) -> Result<String, String> {
    let fits = |c: char| !c.is_control() && !c.is_whitespace() && !":,/".contains(c);
    match text {
        "" => Err("a name is missing".to_owned()),
        text if text.len() > 32 || !text.chars().all(fits) => Err("no name of a user".to_owned()),
        text => Ok(text.to_owned()),
    }
}

/// A part of a whole, with or without the sign.
pub(super) fn percent(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    match number.parse() {
        Ok(percent @ 1..=99) => Ok(percent),
        _ => Err("not a number from 1 to 99, as in 15%".to_owned()),
    }
}

/// A number of bytes as people write it: 4096, 64K, 512 MiB, 1.5G; by units that are spelled as those of disks (MB) in
/// thousands.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    const NO_NUMBER: &str = "not a number of bytes, as in 512M or 1.5GiB";
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = (text[..end].trim_end(), text[end..].to_ascii_lowercase());
    let (letter, spelling) = unit.split_at(usize::from(!unit.is_empty()));
    let power = match (letter, spelling) {
        ("", "") | ("b", "") => 0,
        ("k", _) => 1,
        ("m", _) => 2,
        ("g", _) => 3,
        ("t", _) => 4,
        _ => return Err("the unit must be K, M, G or T".to_owned()),
    };
    let base: u64 = match spelling {
        "" | "i" | "ib" => 1024,
        "b" => 1000,
        _ => return Err("the unit must be K, M, G or T".to_owned()),
    };
    let unit = base.pow(power);
    let too_many = || "too many bytes".to_owned();
    if let Ok(number) = number.parse::<u64>() {
        return number.checked_mul(unit).ok_or_else(too_many);
    }
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number = number.parse::<f64>().ok().filter(|_| is_plain);
    // Both are exact enough for a limit.
    let bytes = number.ok_or_else(|| NO_NUMBER.to_owned())? * unit as f64;
    if bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(too_many()) }
}

/// A set of processor features.
pub(super) fn baseline(text: &str) -> Result<Baseline, String> {
    Baseline::of(text)
        .ok_or_else(|| format!("must be one of {}", Baseline::ALL.map(Baseline::name).join(", ")))
}

/// A node and a number.
pub(super) fn pinned(text: &str) -> Result<(NodeName, u32), String> {
    let (node, number) = text.split_once('=').ok_or("not of the form NODE=N")?;
    let node = node.parse().map_err(|error: protocol::cluster::NameError| error.to_string())?;
    Ok((node, number.parse().map_err(|_| format!("{number:?} is not a number"))?))
}

/// A signal by its name, with SIG or without, that a program may catch.
pub(super) fn signal(text: &str) -> Result<i32, String> {
    let name = text.to_ascii_uppercase();
    let name = if name.starts_with("SIG") { name } else { format!("SIG{name}") };
    let known = ["SIGUSR1", "SIGUSR2", "SIGTERM", "SIGINT", "SIGXCPU", "SIGPWR", "SIGHUP"];
    if !known.contains(&name.as_str()) {
        return Err(format!("it is none of {}", known.join(", ")));
    }
    name.parse::<nix::sys::signal::Signal>()
        .map(|signal| signal as i32)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_bytes_are_read() {
        for (text, number) in [
            ("0", 0),
            ("4096", 4096),
            ("64K", 65536),
            ("2G", 2 << 30),
            ("1.5G", 3 << 29),
            ("512 MiB", 512 << 20),
            ("10MB", 10_000_000),
        ] {
            assert_eq!(bytes(text).unwrap(), number, "{text}");
        }
        for text in ["", "G", "-1", "1X", "1.5.5G", "infK", "1e3", "2Kb2", "99999999999T"] {
            bytes(text).unwrap_err();
        }
    }

    #[test]
    fn addresses_and_times_are_read_as_people_write_them() {
        for (text, address) in [
            ("10.0.0.1:99", "10.0.0.1:99"),
            ("10.0.0.1", "10.0.0.1:7070"),
            ("::1", "[::1]:7070"),
            (":99", "0.0.0.0:99"),
        ] {
            assert_eq!(listen_address(text).unwrap().to_string(), address);
        }
        for (text, address) in [
            ("7071", "127.0.0.1:7071"),
            (":80", "127.0.0.1:80"),
            ("127.0.0.2", "127.0.0.2:7071"),
            ("[::1]:9", "[::1]:9"),
        ] {
            assert_eq!(page_address(text).unwrap().to_string(), address);
        }
        for text in ["", "host", "70000", "localhost:7071"] {
            page_address(text).unwrap_err();
        }
        for (text, seconds) in
            [("90", 90), ("2m", 120), ("1h30m", 5400), ("1d", 86_400), ("1w", 604_800)]
        {
            assert_eq!(time_span(text).unwrap(), Duration::from_secs(seconds));
        }
        for text in
            ["0s", "0.5", "-1", "nan", "inf", "", "m", "5M", "400d", "99999999999999999999d"]
        {
            time_span(text).unwrap_err();
        }
        for text in ["2023-11-14T22:13:20Z", "2023-11-14 22:13:20"] {
            assert_eq!(moment(text), Ok(1_700_000_000_000));
        }
        let now = crate::text::now_ms();
        assert!((now - 300_000..now).contains(&moment("5m").unwrap()));
        for text in ["yesterday", "5M", "-5m", "2023-11-14", "15:04"] {
            moment(text).unwrap_err();
        }
        assert_eq!([seconds("0.25"), seconds("250ms")], [Ok(0.25), Ok(0.25)]);
        assert_eq!(
            [time_or_none("0"), time_or_none("0s")],
            [Ok(Duration::ZERO), Ok(Duration::ZERO)]
        );
        assert_eq!(pinned("a=12").unwrap().1, 12);
        assert!(pinned("a").is_err() && pinned("a=").is_err());
    }
}
