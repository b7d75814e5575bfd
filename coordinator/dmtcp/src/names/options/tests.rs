//! Options as they are written.

use super::*;
use crate::names::launch::Launch;

fn parsed(line: &str) -> Result<(Launch, String), Error> {
    let words: Vec<_> = line.split_whitespace().map(OsString::from).collect();
    parse(with_ignored(Launch::command()), &[], &words)
}

#[test]
fn options_are_dmtcp_s() {
    let line = "-h node1 -p 7000 -i 5 --ckptdir /c -j -q --no-gzip --tmpdir /t ./app -i 9 --fly";
    let (Launch { options, command }, ignored) = parsed(line).unwrap();
    assert_eq!((options.host.as_str(), options.port()), ("node1", Some(7000)));
    assert_eq!((options.interval, options.mode(), options.quiet), (Some(5), Mode::Join, 1));
    assert_eq!(command, ["./app", "-i", "9", "--fly"]);
    assert_eq!(ignored, " --no-gzip --tmpdir");
}

#[test]
fn ports_are_given_or_found() {
    let port = |line| parsed(line).unwrap().0.options.port();
    assert_eq!(port("-p0 a"), None);
    assert_eq!(port("-p7001 a"), Some(7001));
    assert_eq!(port("-p 1 --coord-port 7002 a"), Some(7002));
    assert_eq!(port("--new-coordinator a"), None);
    assert_eq!(port("a"), Some(DEFAULT_PORT));
}

#[test]
fn the_last_of_several_options_counts() {
    let (Launch { options, .. }, _) = parsed("-j --new-coordinator -qq -t /t -- a").unwrap();
    assert_eq!((options.mode(), options.quiet), (Mode::New, 2));
    assert_eq!(parsed("--any-coordinator --join a").unwrap().0.options.mode(), Mode::Join);
}

#[test]
fn nonsense_is_told() {
    for line in ["--fly a", "-p", "-p x a", "-i -3 a", "-p 70000 a", ""] {
        assert!(parsed(line).is_err(), "{line}");
    }
    assert_eq!(parsed("--help").unwrap_err().kind(), ErrorKind::DisplayHelp);
}
