use super::*;
use crate::token::METRICS_FILE;
use hyper::Method;

struct Page {
    context: Context,
    dir: tempfile::TempDir,
}

impl Page {
    /// One of a coordinator that is not there.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tokens = Arc::new(Tokens::open(dir.path()).unwrap());
        let watch = Watch::new(dir.path()).unwrap();
        Self { context: Context::new(tokens, watch), dir }
    }

    async fn ask(&self, target: &str, headers: &[(&str, &str)]) -> Answer {
        let request =
            Request::builder().method(Method::GET).uri(target).header("host", "localhost");
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        answer(&self.context, &request.body(()).unwrap()).await
    }

    fn bearer(&self) -> String {
        format!("Bearer {}", self.context.tokens.secret())
    }
}

async fn text(answer: Answer) -> String {
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn without_the_secret_nothing_is_told() {
    let page = Page::new();
    for target in ["/data", "/events", "/log?job=a", "/metrics", "/"] {
        let status = page.ask(target, &[]).await.status();
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{target}");
        let wrong = [
            ("authorization", "Bearer 0123"),
            ("cookie", &format!("{}=0123", page.context.tokens.cookie_name())),
        ];
        assert_eq!(page.ask(target, &wrong).await.status(), StatusCode::UNAUTHORIZED, "{target}");
    }
    assert_eq!(page.ask("/?login=0123", &[]).await.status(), StatusCode::FORBIDDEN);
    // An address with the secret itself would stay in histories.
    let lasting = format!("/?token={}", page.context.tokens.secret());
    assert_eq!(page.ask(&lasting, &[]).await.status(), StatusCode::UNAUTHORIZED);
    let lasting = format!("/?login={}", page.context.tokens.secret());
    assert_eq!(page.ask(&lasting, &[]).await.status(), StatusCode::FORBIDDEN);
    assert_eq!(page.ask("/nothing", &[]).await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_login_becomes_a_cookie_once() {
    let page = Page::new();
    crate::token::note_address(page.dir.path(), "/").unwrap();
    let target = crate::token::login_address(page.dir.path()).unwrap();
    let head = Request::builder().method(Method::HEAD).uri(&target).header("host", "localhost");
    let head = answer(&page.context, &head.body(()).unwrap()).await;
    assert_eq!(head.status(), StatusCode::UNAUTHORIZED);
    let answer = page.ask(&target, &[]).await;
    assert_eq!(answer.status(), StatusCode::SEE_OTHER);
    assert_eq!(answer.headers()[header::LOCATION], "/");
    let cookie = answer.headers()[header::SET_COOKIE].to_str().unwrap().to_owned();
    assert!(cookie.contains("; HttpOnly; SameSite=Strict"), "{cookie}");
    assert!(!cookie.contains(page.context.tokens.secret()), "{cookie}");
    let again = page.ask(&target, &[]).await;
    assert_eq!(again.status(), StatusCode::FORBIDDEN);
    assert!(!again.headers().contains_key(header::SET_COOKIE));
    let pair = cookie.split(';').next().unwrap();
    // The browser that has the cookie is led on, as by its history.
    assert_eq!(page.ask(&target, &[("cookie", pair)]).await.status(), StatusCode::SEE_OTHER);
    let answer = page.ask("/", &[("cookie", pair)]).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let policy = answer.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
    assert!(policy.contains("script-src 'self'") && !policy.contains("unsafe"), "{policy}");
    // The coordinator is not there: that is told, and no more.
    let told: serde_json::Value =
        serde_json::from_str(&text(page.ask("/data", &[("cookie", pair)]).await).await).unwrap();
    assert!(told["error"].as_str().unwrap().starts_with("failed to ask the coordinator"), "{told}");
}

#[tokio::test]
async fn the_secret_of_the_metrics_shows_these_alone() {
    let page = Page::new();
    let secret = std::fs::read_to_string(page.dir.path().join(METRICS_FILE)).unwrap();
    let bearer = format!("Bearer {}", secret.trim());
    let headers = [("authorization", bearer.as_str())];
    // There is no coordinator to ask.
    let status = page.ask("/metrics", &headers).await.status();
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    for target in ["/", "/data", "/events", "/log?job=a"] {
        assert_eq!(page.ask(target, &headers).await.status(), StatusCode::FORBIDDEN, "{target}");
    }
    let target = format!("/?login={}", secret.trim());
    assert_eq!(page.ask(&target, &[]).await.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn streams_are_limited() {
    let page = Page::new();
    let bearer = page.bearer();
    let headers = [("authorization", bearer.as_str())];
    let mut open = Vec::new();
    for _ in 0..limits::STREAMS {
        let answer = page.ask("/events", &headers).await;
        assert_eq!(answer.status(), StatusCode::OK);
        open.push(answer);
    }
    let status = page.ask("/events", &headers).await.status();
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    let mut first = open.pop().unwrap().into_body();
    let frame = first.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(frame.starts_with(b"data: {") && frame.ends_with(b"}\n\n"), "{frame:?}");
}

#[tokio::test]
async fn another_host_and_other_methods_are_refused() {
    let page = Page::new();
    let bearer = page.bearer();
    let request = |method: Method, host: &str| {
        let request = Request::builder().method(method).uri("/data").header("host", host);
        request.header("authorization", &bearer).body(()).unwrap()
    };
    let wrong = answer(&page.context, &request(Method::GET, "evil.example")).await;
    assert_eq!(wrong.status(), StatusCode::MISDIRECTED_REQUEST);
    let posted = answer(&page.context, &request(Method::POST, "localhost")).await;
    assert_eq!(posted.status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[test]
fn escapes_of_a_query() {
    assert_eq!(decoded("a%2Db%3cé").as_deref(), Some("a-b<é"));
    for wrong in ["%", "%2", "%zz", "%ff", &"a".repeat(LONGEST_ID + 1)] {
        assert_eq!(decoded(wrong), None, "{wrong}");
    }
}
