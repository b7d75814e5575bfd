//! When the certificate of the coordinator's page ends: told by the page, and worth attention some time before.

use super::decisions;
use crate::event::Time;

/// So long before its end a certificate is worth attention, in milliseconds: 30 days.
const SOON: u64 = 30 * DAY;
/// Milliseconds of a day.
const DAY: u64 = 24 * 3600 * 1000;

/// The certificate that the page shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageCertificate {
    /// Until when it is good, in milliseconds since 1970.
    pub ends_ms: u64,
    /// Whether the coordinator has made it.
    pub is_own: bool,
}

/// It, and what was said of it in the log.
#[derive(Debug, Default)]
pub(super) struct WatchedCertificate {
    shown: Option<PageCertificate>,
    told: Option<Stage>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    EndsSoon,
    Ended,
}

impl WatchedCertificate {
    /// The page shows that one from now on; None: it shows none.
    pub(super) fn becomes(&mut self, shown: Option<PageCertificate>) {
        *self = Self { shown, told: None };
    }

    /// What is the matter, and what to do; None: nothing.
    pub(super) fn concern(&self, now: Time) -> Option<String> {
        let shown = self.shown?;
        let ends = match shown.stage(now)? {
            Stage::EndsSoon => match (shown.ends_ms - now.unix_ms) / DAY {
                0 => "ends within a day".to_owned(),
                1 => "ends in 1 day".to_owned(),
                days => format!("ends in {days} days"),
            },
            Stage::Ended => "has ended, and browsers refuse it".to_owned(),
        };
        let way = match shown.is_own {
            true => "start the coordinator again, and it makes another, with another fingerprint",
            false => {
                "replace the files of --http-certificate and --http-key, and the page shows them within seconds"
            }
        };
        Some(format!("the certificate of the coordinator's page {ends}: {way}"))
    }

    /// Writes that into the log, once that it ends soon and once that it has ended.
    pub(super) fn tell(&mut self, now: Time) {
        let stage = self.shown.and_then(|shown| shown.stage(now));
        if stage == self.told {
            return;
        }
        self.told = stage;
        if let Some(concern) = self.concern(now) {
            decisions::page_certificate(&concern);
        }
    }
}

impl PageCertificate {
    /// As certificates are good up to and including their last second (RFC 5280, section 4.1.2.5).
    fn stage(&self, now: Time) -> Option<Stage> {
        if now.unix_ms > self.ends_ms {
            return Some(Stage::Ended);
        }
        (self.ends_ms - now.unix_ms < SOON).then_some(Stage::EndsSoon)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(unix_ms: u64) -> Time {
        Time { nanos: 0, unix_ms }
    }

    #[test]
    fn a_certificate_is_worth_attention_from_thirty_days_before_its_end() {
        let shown = PageCertificate { ends_ms: 100 * DAY, is_own: false };
        let watched = WatchedCertificate { shown: Some(shown), told: None };
        assert_eq!(watched.concern(at(70 * DAY)), None);
        let is = |now: u64, text: &str| {
            let concern = watched.concern(at(now)).unwrap();
            assert!(concern.contains(text) && concern.contains("--http-certificate"), "{concern}");
        };
        is(70 * DAY + 1, "ends in 29 days");
        is(99 * DAY, "ends in 1 day:");
        is(100 * DAY, "ends within a day");
        is(100 * DAY + 1, "has ended");
        let own = PageCertificate { is_own: true, ..shown };
        let watched = WatchedCertificate { shown: Some(own), told: None };
        assert!(watched.concern(at(101 * DAY)).unwrap().contains("start the coordinator again"));
        assert_eq!(WatchedCertificate::default().concern(at(101 * DAY)), None);
    }

    #[test]
    fn each_stage_is_told_once_for_each_certificate() {
        let mut watched = WatchedCertificate::default();
        let shown = PageCertificate { ends_ms: 100 * DAY, is_own: false };
        let told = |watched: &mut WatchedCertificate, now: u64| {
            let before = watched.told;
            watched.tell(at(now));
            (watched.told != before).then_some(watched.told).flatten()
        };
        assert_eq!(told(&mut watched, 99 * DAY), None);
        watched.becomes(Some(shown));
        assert_eq!(told(&mut watched, 0), None);
        assert_eq!(told(&mut watched, 80 * DAY), Some(Stage::EndsSoon));
        assert_eq!(told(&mut watched, 81 * DAY), None);
        assert_eq!(told(&mut watched, 101 * DAY), Some(Stage::Ended));
        assert_eq!(told(&mut watched, 102 * DAY), None);
        // Another one, which ends soon, too.
        watched.becomes(Some(PageCertificate { ends_ms: 110 * DAY, ..shown }));
        assert_eq!(told(&mut watched, 102 * DAY), Some(Stage::EndsSoon));
        watched.becomes(None);
        assert_eq!(told(&mut watched, 102 * DAY), None);
    }
}
