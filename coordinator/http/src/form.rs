//! What is sent with an order: pairs, as forms send them (application/x-www-form-urlencoded).

use crate::limits;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Body;

/// The body of a request.
pub trait Sent: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> {}

impl<B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>> Sent for B {}

/// The pairs of a body.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads them; None: there are too many, they come too slowly, or they are none.
    pub async fn read(body: impl Sent) -> Option<Self> {
        let whole = Limited::new(body, limits::FORM).collect();
        let whole = tokio::time::timeout(limits::IDLE, whole).await.ok()?.ok()?;
        let text = String::from_utf8(whole.to_bytes().to_vec()).ok()?;
        Self::of(&text)
    }

    fn of(text: &str) -> Option<Self> {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decoded(&key.replace('+', " "))?, decoded(&value.replace('+', " "))?))
        });
        pairs.collect::<Option<Vec<_>>>().map(Self)
    }

    /// The value of that name; None: there is none, or more than one.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut found = self.0.iter().filter(|(key, _)| key == name);
        match (found.next(), found.next()) {
            (Some((_, value)), None) => Some(value),
            _ => None,
        }
    }
}

/// A part of a query without its escapes (RFC 3986, 2.1).
pub(crate) fn decoded(text: &str) -> Option<String> {
    if text.len() > limits::FORM {
        return None;
    }
    let mut bytes = text.bytes();
    let mut found = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        found.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                let digits = digits.map(|digit| char::from(digit).to_digit(16));
                u8::try_from(digits[0]? * 16 + digits[1]?).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(found).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;

    #[test]
    fn escapes_of_a_query() {
        assert_eq!(decoded("a%2Db%3cé").as_deref(), Some("a-b<é"));
        for wrong in ["%", "%2", "%zz", "%ff", &"a".repeat(limits::FORM + 1)] {
            assert_eq!(decoded(wrong), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn pairs_of_a_form_are_few_and_unique() {
        let read = |text: &str| Form::read(Full::new(Bytes::from(text.to_owned())));
        let form = read("what=drain&about=a+b%26&x").await.unwrap();
        let got = ["what", "about", "x", "y"].map(|name| form.get(name));
        assert_eq!(got, [Some("drain"), Some("a b&"), Some(""), None]);
        assert_eq!(read("a=1&a=2").await.unwrap().get("a"), None);
        assert_eq!(read("").await, Some(Form::default()));
        assert_eq!(read(&"a".repeat(limits::FORM + 1)).await, None);
        assert_eq!(read("a=%ff").await, None);
    }
}
