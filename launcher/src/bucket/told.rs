//! Errors without anything secret: what a server answers may repeat parts of a request.

use super::BucketError;
use object_store::Error;

/// The longest cause that is told, in bytes.
const MOST_CAUSE: usize = 200;
/// The longest code of an answer.
const MOST_CODE: usize = 64;

/// Who was asked.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) bucket: String,
    pub(super) endpoint: String,
    /// Whether a variable names who asks.
    pub(super) has_credentials: bool,
}

pub(super) fn told(server: &Server, error: &Error) -> BucketError {
    let text = error.to_string();
    let code = code(&text);
    let denied = matches!(error, Error::PermissionDenied { .. } | Error::Unauthenticated { .. });
    match (error, code) {
        (_, Some("NoSuchBucket")) => BucketError::NoBucket(server.bucket.clone()),
        _ if denied => BucketError::Denied(code.unwrap_or("403").to_owned()),
        (Error::NotFound { .. }, _) => BucketError::NotFound,
        (Error::Precondition { .. }, _) => BucketError::Replaced,
        (_, None) if !server.has_credentials => BucketError::NoCredentials,
        (_, code) => BucketError::Other {
            endpoint: server.endpoint.clone(),
            cause: code.map_or_else(|| deepest(error), str::to_owned),
        },
    }
}

/// The code in an answer: `<Error><Code>NoSuchBucket</Code>...`.
fn code(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let is_code = code.len() <= MOST_CODE && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    Some(code).filter(|code| is_code && !code.is_empty())
}

/// The innermost cause, such as that nobody listens; never an answer's text.
fn deepest(error: &Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    let text = cause.to_string();
    if text.contains(['<', '\n']) || text.is_empty() {
        return "an answer that is not understood".to_owned();
    }
    text.chars().take(MOST_CAUSE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(source: &str) -> Error {
        Error::Generic { store: "S3", source: source.to_owned().into() }
    }

    #[test]
    fn answers_are_told_by_their_code_alone() {
        let body =
            "400: <Error><Code>Malformed</Code><StringToSign>AKIA secret</StringToSign></Error>";
        assert_eq!(code(body), Some("Malformed"));
        assert_eq!(code("<Code></Code>"), None);
        assert_eq!(code("<Code>a b</Code>"), None);
        assert!(!deepest(&refused(body)).contains("secret"));
        assert_eq!(deepest(&refused("Connection refused")), "Connection refused");
        assert_eq!(deepest(&refused(&"x".repeat(5000))).len(), MOST_CAUSE);
    }
}
