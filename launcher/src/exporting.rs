//! Whether spans are to be exported, by the variables that programs have in common for that:
//! <https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>.

/// Where something is said that is said once.
pub type Tell = fn(&str);

/// What kind of process of ckptd this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Process {
    /// A cluster's coordinator.
    Coordinator,
    /// An agent of a cluster.
    Agent,
    /// A command that runs a job on this machine alone.
    Job,
}

#[cfg_attr(not(feature = "opentelemetry"), expect(dead_code, reason = "nothing is exported"))]
impl Process {
    /// Its name among services.
    pub fn service(self) -> &'static str {
        match self {
            Self::Coordinator => "ckptd-coordinator",
            Self::Agent => "ckptd-agent",
            Self::Job => "ckptd",
        }
    }

    /// Whether it relies on being the only thread of its process for a while.
    pub fn may_have_to_be_alone(self) -> bool {
        self == Self::Agent
    }
}

fn value(name: &str) -> Option<String> {
    // An empty one counts as one that is not set.
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Where spans are to be sent; None: nowhere, since nobody asks for it.
pub fn endpoint() -> Option<String> {
    endpoint_by(&value)
}

fn endpoint_by(value: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let is_disabled = value("OTEL_SDK_DISABLED").is_some_and(|is| is.eq_ignore_ascii_case("true"));
    // Others than OTLP's there are none.
    let is_otlp = |list: String| list.split(',').any(|one| one.trim().eq_ignore_ascii_case("otlp"));
    if is_disabled || value("OTEL_TRACES_EXPORTER").is_some_and(|list| !is_otlp(list)) {
        return None;
    }
    value("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(|| {
        let base = value("OTEL_EXPORTER_OTLP_ENDPOINT")?;
        Some(format!("{}/v1/traces", base.trim_end_matches('/')))
    })
}

/// An endpoint without what may be secret in it: a user's name and password, and a query.
pub fn shown(endpoint: &str) -> String {
    let plain = endpoint.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = plain.split_once("://") else {
        return "an address without http:// or https://".to_owned();
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = host.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}/{path}")
}

/// Whether the user has named this service.
#[cfg_attr(not(feature = "opentelemetry"), expect(dead_code, reason = "nothing is exported"))]
pub fn is_service_named() -> bool {
    let attributes = value("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let names = || attributes.split(',').filter_map(|pair| pair.split('=').next());
    value("OTEL_SERVICE_NAME").is_some() || names().any(|name| name.trim() == "service.name")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(set: &[(&str, &str)]) -> Option<String> {
        endpoint_by(&|name| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn no_password_is_shown() {
        let endpoint = "https://me:word@collector:4318/v1/traces?key=word#word";
        assert_eq!(shown(endpoint), "https://collector:4318/v1/traces");
        assert_eq!(shown("http://collector"), "http://collector/");
        assert!(!shown("me:word@collector").contains("word"));
    }

    #[test]
    fn nothing_goes_anywhere_unasked() {
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");
        assert_eq!(by(&[]), None);
        assert_eq!(by(&[("OTEL_SERVICE_NAME", "x")]), None);
        assert_eq!(by(&[base, ("OTEL_SDK_DISABLED", "TRUE")]), None);
        assert_eq!(by(&[base, ("OTEL_TRACES_EXPORTER", "none")]), None);
        assert_eq!(by(&[base, ("OTEL_TRACES_EXPORTER", "console")]), None);
        assert!(by(&[base, ("OTEL_TRACES_EXPORTER", "console, OTLP")]).is_some());
        assert_eq!(by(&[base]).as_deref(), Some("http://collector:4318/v1/traces"));
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://other/spans");
        assert_eq!(by(&[base, own]).as_deref(), Some("http://other/spans"));
    }
}
