//! An object of a bucket, with the credentials of the usual variables AWS_*.

use super::connector::{Connector, Patience};
use super::told::{Server, told};
use super::{Address, BucketError, GiveUp};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{Error, RetryConfig};
use std::future::Future;
use std::time::Duration;

/// What names somebody who asks; without any, the machine itself is asked, as in Amazon's own.
const CREDENTIALS: [&str; 4] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];
/// What names another server than Amazon's; the first one counts.
const ENDPOINTS: [&str; 3] = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
/// Who asks, and the proof.
const PAIR: [&str; 2] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
/// What else goes into a line of a request.
const OF_A_LINE: [&str; 3] = ["AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"];

/// Between two looks whether something is given up.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// An object of a bucket.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) store: AmazonS3,
    pub(super) path: Path,
    server: Server,
}

impl Object {
    pub(super) fn of(address: &Address, patience: Patience) -> Result<Self, BucketError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        check_variables(variable)?;
        let endpoint = ENDPOINTS.iter().find_map(|name| variable(name));
        // Whoever names a server without TLS wants it so; the signature of a request is no secret.
        let in_clear = endpoint.as_ref().is_some_and(|url| url.starts_with("http://"));
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(address.bucket())
            .with_http_connector(Connector { patience, in_clear })
            .with_retry(RetryConfig {
                max_retries: patience.retries,
                retry_timeout: patience.retrying,
                ..RetryConfig::default()
            });
        if let Some(endpoint) = &endpoint {
            builder = builder.with_endpoint(endpoint).with_allow_http(in_clear);
        }
        // Its text may repeat a value.
        let unfit = |_| BucketError::Variable("they do not go together".to_owned());
        let store = builder.build().map_err(unfit)?;
        let path =
            Path::parse(address.key()).map_err(|_| BucketError::NoAddress(address.to_string()))?;
        let endpoint = endpoint.unwrap_or_else(|| "amazonaws.com".to_owned());
        let has_credentials = CREDENTIALS.iter().any(|name| variable(name).is_some());
        let server = Server { bucket: address.bucket().to_owned(), endpoint, has_credentials };
        Ok(Self { store, path, server })
    }

    pub(super) fn told(&self, error: &Error) -> BucketError {
        told(&self.server, error)
    }
}

/// What would be refused in the middle of a request, or makes none.
fn check_variables(variable: impl Fn(&str) -> Option<String>) -> Result<(), BucketError> {
    let wrong = |text: String| Err(BucketError::Variable(text));
    let is_set = |name: &&str| variable(name).is_some();
    if PAIR.iter().filter(|name| is_set(name)).count() == 1 {
        return wrong(format!("{} and {} go together", PAIR[0], PAIR[1]));
    }
    let of_a_line = |value: String| value.bytes().all(|byte| byte.is_ascii_graphic());
    let names = PAIR.iter().chain(&OF_A_LINE).chain(&ENDPOINTS);
    for name in names {
        if variable(name).is_some_and(|value| !of_a_line(value)) {
            return wrong(format!("{name} has blanks in it, or what is not ASCII"));
        }
    }
    for name in ENDPOINTS {
        let schemes = ["https://", "http://"];
        let is_url = |value: String| schemes.iter().any(|scheme| value.starts_with(scheme));
        if variable(name).is_some_and(|value| !is_url(value)) {
            return wrong(format!("{name} begins neither with https:// nor with http://"));
        }
    }
    Ok(())
}

/// Waits for it. Called where there is no event loop.
pub(super) fn wait<T>(
    future: impl Future<Output = Result<T, BucketError>>,
) -> Result<T, BucketError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(future);
    // A host that is still being looked up holds nobody up.
    runtime.shutdown_background();
    done
}

/// Waits for it, until it is given up.
pub(super) async fn unless<T>(
    give_up: &GiveUp,
    future: impl Future<Output = Result<T, BucketError>>,
) -> Result<T, BucketError> {
    tokio::pin!(future);
    loop {
        tokio::select! {
            done = &mut future => return done,
            () = tokio::time::sleep(LOOK) => if give_up.is_asked() {
                return Err(BucketError::GivenUp);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_checked_before_a_request() {
        let told = |set: &[(&str, &str)]| {
            let found = |name: &str| set.iter().find(|(of, _)| *of == name);
            let checked = check_variables(|name| Some(found(name)?.1.to_owned()));
            checked.err().map(|error| error.to_string()).unwrap_or_default()
        };
        let (id, secret) = (("AWS_ACCESS_KEY_ID", "AKIA"), ("AWS_SECRET_ACCESS_KEY", "hidden+/="));
        assert_eq!(told(&[]), "");
        assert_eq!(told(&[id, secret, ("AWS_ENDPOINT_URL", "http://node0:5000")]), "");
        assert!(told(&[id]).contains("go together"));
        let of_two_lines = told(&[id, ("AWS_SECRET_ACCESS_KEY", "hidden\n")]);
        assert!(of_two_lines.contains("AWS_SECRET_ACCESS_KEY has blanks"), "{of_two_lines}");
        assert!(!of_two_lines.contains("hidden"));
        assert!(told(&[("AWS_ENDPOINT_URL", "node0:5000")]).contains("begins neither"));
    }
}
