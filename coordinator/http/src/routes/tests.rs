use super::*;
use crate::grants::{self, Wanted};
use crate::role::Role;
use crate::token::METRICS_FILE;
use crate::tries::MOST_WRONG;

/// The machine of a browser.
const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

struct Page {
    context: Arc<Context>,
    dir: tempfile::TempDir,
}

impl Page {
    /// One of a coordinator that is not there.
    fn new() -> Self {
        Self::of(|tokens| tokens)
    }

    /// One that other machines reach.
    fn remote() -> Self {
        Self::of(Tokens::remote)
    }

    fn of(change: impl Fn(Tokens) -> Tokens) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tokens = change(Tokens::open(dir.path()).unwrap());
        let watch = Watch::new(dir.path()).unwrap();
        Self { context: Arc::new(Context::new(tokens, watch)), dir }
    }

    async fn ask(&self, target: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(Method::GET, target, headers, "").await
    }

    async fn send(
        &self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        self.send_from(HERE, method, target, headers, body).await
    }

    async fn send_from(
        &self,
        from: IpAddr,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let request = Request::builder().method(method).uri(target).header("host", "localhost");
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        answer(&self.context, from, || (), request).await
    }

    fn bearer(&self) -> String {
        format!("Bearer {}", self.context.tokens.secret())
    }

    fn token(&self, name: &str, role: Role) -> String {
        let wanted = Wanted { name: name.into(), role, user: None, valid_ms: None };
        grants::add(self.dir.path(), wanted).unwrap()
    }

    /// The cookie of a browser in which a token was typed, and what its orders show.
    async fn typed(&self, token: &str) -> (String, String) {
        let answer = self.send(Method::POST, "/login", &[], &format!("token={token}")).await;
        assert_eq!(answer.status(), StatusCode::OK);
        let cookie = answer.headers()[header::SET_COOKIE].to_str().unwrap();
        let pair = cookie.split(';').next().unwrap().to_owned();
        let page = text(self.ask("/", &[("cookie", &pair)]).await).await;
        let secret = page.split("name=\"ckptd-order\" content=\"").nth(1).unwrap();
        (pair, secret.split('"').next().unwrap().to_owned())
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
    page.context.tokens.note_address(page.dir.path(), "/").unwrap();
    let target = crate::token::login_address(page.dir.path(), Role::Viewer).unwrap();
    let head = page.send(Method::HEAD, &target, &[], "").await;
    assert_eq!(head.status(), StatusCode::UNAUTHORIZED);
    let answer = page.ask(&target, &[]).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let cookie = answer.headers()[header::SET_COOKIE].to_str().unwrap().to_owned();
    assert!(text(answer).await.contains("content=\"0;url=/\""));
    assert!(cookie.contains("; HttpOnly; SameSite=Strict"), "{cookie}");
    assert!(!cookie.contains(page.context.tokens.secret()), "{cookie}");
    let again = page.ask(&target, &[]).await;
    assert_eq!(again.status(), StatusCode::FORBIDDEN);
    assert!(!again.headers().contains_key(header::SET_COOKIE));
    let pair = cookie.split(';').next().unwrap();
    // The browser that has the cookie is led on, as by its history.
    assert_eq!(page.ask(&target, &[("cookie", pair)]).await.status(), StatusCode::OK);
    // What it opens is used up all the same.
    let next = crate::token::login_address(page.dir.path(), Role::Viewer).unwrap();
    assert_eq!(page.ask(&next, &[("cookie", pair)]).await.status(), StatusCode::OK);
    assert_eq!(page.ask(&next, &[]).await.status(), StatusCode::FORBIDDEN);
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
        request.header("authorization", &bearer).body(Full::new(Bytes::new())).unwrap()
    };
    let asked = |request| answer(&page.context, HERE, || (), request);
    let wrong = asked(request(Method::GET, "evil.example")).await;
    assert_eq!(wrong.status(), StatusCode::MISDIRECTED_REQUEST);
    let posted = asked(request(Method::POST, "localhost")).await;
    assert_eq!(posted.status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn a_token_that_is_typed_becomes_a_cookie_that_ends_with_it() {
    let page = Page::remote();
    let token = page.token("boss", Role::Operator);
    let (pair, _) = page.typed(&token).await;
    assert!(pair.starts_with("__Host-ckptd-") && !pair.contains(&token), "{pair}");
    let cookie = [("cookie", pair.as_str())];
    assert_eq!(page.ask("/data", &cookie).await.status(), StatusCode::OK);
    let mut events = page.ask("/events", &cookie).await.into_body();
    assert!(events.frame().await.is_some());
    grants::remove(page.dir.path(), "boss").unwrap();
    assert_eq!(page.ask("/data", &cookie).await.status(), StatusCode::UNAUTHORIZED);
    // An open page is told nothing any more, not even what another look has found.
    page.context.watch.now(&crate::role::Sight::own(Role::Viewer)).await;
    let ended =
        tokio::time::timeout(2 * limits::PULSE, async { while events.frame().await.is_some() {} });
    ended.await.unwrap();
    // The secrets of the folder are good on its machine alone.
    let bearer = page.bearer();
    let status = page.ask("/data", &[("authorization", &bearer)]).await.status();
    assert_eq!(status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn only_operators_order_and_only_at_the_page() {
    let page = Page::new();
    let (viewer, operator) = (page.token("v", Role::Viewer), page.token("o", Role::Operator));
    let body = "what=drain&about=node3";
    let order = async |headers: &[(&str, &str)], body: &str| {
        page.send(Method::POST, "/order", headers, body).await.status()
    };
    let (pair, secret) = page.typed(&operator).await;
    let (cookie, shown) = (("cookie", pair.as_str()), ("x-ckptd-order", secret.as_str()));
    // The coordinator is not there, which is found out by asking it.
    assert_eq!(order(&[cookie, shown], body).await, StatusCode::SERVICE_UNAVAILABLE);
    let bearer = format!("Bearer {operator}");
    let bearer = ("authorization", bearer.as_str());
    assert_eq!(order(&[bearer], body).await, StatusCode::SERVICE_UNAVAILABLE);
    for wrong in [
        "",
        "what=drain",
        "what=stop&about=a",
        "what=drain&about=",
        "what=drain&what=drain&about=a",
    ] {
        assert_eq!(order(&[bearer], wrong).await, StatusCode::BAD_REQUEST, "{wrong}");
    }
    assert_eq!(order(&[bearer], "what=drain&about=no+node").await, StatusCode::BAD_REQUEST);
    // A browser that another site has sent here.
    let elsewhere = ("origin", "http://evil.example");
    assert_eq!(order(&[cookie, shown, elsewhere], body).await, StatusCode::FORBIDDEN);
    assert_eq!(order(&[cookie], body).await, StatusCode::FORBIDDEN);
    assert_eq!(order(&[], body).await, StatusCode::UNAUTHORIZED);
    let own = page.bearer();
    assert_eq!(order(&[("authorization", &own)], body).await, StatusCode::FORBIDDEN);
    let (pair, secret) = page.typed(&viewer).await;
    let (cookie, shown) = (("cookie", pair.as_str()), ("x-ckptd-order", secret.as_str()));
    assert_eq!(order(&[cookie, shown], body).await, StatusCode::FORBIDDEN);
    // Nor does its page offer any.
    assert!(!text(page.ask("/", &[cookie]).await).await.contains("data-acts"));
    let out = page.send(Method::POST, "/logout", &[cookie, shown], "").await;
    assert_eq!(out.status(), StatusCode::OK);
    assert_eq!(page.ask("/data", &[cookie]).await.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_machine_that_guesses_is_told_to_wait() {
    let page = Page::remote();
    let token = page.token("v", Role::Viewer);
    let right = format!("Bearer {token}");
    let shown = async |from, bearer: &str| {
        page.send_from(from, Method::GET, "/data", &[("authorization", bearer)], "").await.status()
    };
    for guess in 0..MOST_WRONG {
        let status = match guess % 2 {
            0 => shown(THERE, "Bearer ckptdp1_0").await,
            _ => page.send_from(THERE, Method::POST, "/login", &[], "token=0").await.status(),
        };
        assert!(matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN), "{status}");
    }
    assert_eq!(shown(THERE, "Bearer ckptdp1_0").await, StatusCode::TOO_MANY_REQUESTS);
    let typed = page.send_from(THERE, Method::POST, "/login", &[], "token=0").await;
    assert_eq!(typed.status(), StatusCode::TOO_MANY_REQUESTS);
    for name in [header::RETRY_AFTER, header::CONNECTION] {
        assert!(typed.headers().contains_key(name));
    }
    // Nobody keeps those out who have a token, also from there.
    assert_eq!(shown(THERE, &right).await, StatusCode::OK);
    let typed = page.send_from(THERE, Method::POST, "/login", &[], &format!("token={token}")).await;
    assert_eq!(typed.status(), StatusCode::OK);
    assert_eq!(shown(HERE, "Bearer ckptdp1_0").await, StatusCode::UNAUTHORIZED);
    // On this machine alone nobody keeps others out so.
    let page = Page::new();
    for _ in 0..2 * MOST_WRONG {
        let wrong = page.ask("/data", &[("authorization", "Bearer 0")]).await;
        assert_eq!(wrong.status(), StatusCode::UNAUTHORIZED);
    }
}
