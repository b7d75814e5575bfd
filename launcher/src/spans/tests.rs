use super::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Mutex;
use tracing::{debug_span, trace_span};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;

static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn tell(text: &str) {
    TOLD.lock().unwrap().push(text.to_owned());
}

/// Refuses so many requests, each for good; their bodies.
fn refuse(listener: &TcpListener, count: usize) -> Vec<Vec<u8>> {
    let one = || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let answer = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(answer.as_bytes()).unwrap();
        body
    };
    (0..count).map(|_| one()).collect()
}

#[test]
fn that_spans_do_not_arrive_is_told_once() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let endpoint = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    let collector = std::thread::spawn(move || refuse(&listener, 2));
    let export = Export::to(endpoint.clone(), Process::Agent, tell).unwrap();
    let layer = export.layer().with_filter(LevelFilter::DEBUG);
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::with_default(subscriber, || {
        for name in ["first-job", "second-job"] {
            drop(debug_span!("checkpoint", job = name).entered());
            drop(trace_span!("object").entered());
            assert!(export.provider.force_flush().is_err());
        }
    });
    drop(export);
    let bodies = collector.join().unwrap();
    for (body, name) in bodies.iter().zip(["first-job", "second-job"]) {
        let has = |word: &str| body.windows(word.len()).any(|part| part == word.as_bytes());
        assert!(has("checkpoint") && has(name) && has("ckptd-agent") && !has("object"));
    }
    let told = TOLD.lock().unwrap();
    assert!(told.len() == 1 && told[0].contains(&endpoint), "{told:?}");
    assert!(told[0].contains("it answers 400 Bad Request"), "{told:?}");
}

#[test]
fn a_collector_that_is_not_there_is_told_with_the_kernels_reason() {
    static HERE: Mutex<Vec<String>> = Mutex::new(Vec::new());
    // Bound and closed: nobody listens there.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let endpoint = format!("http://{}/v1/traces?key=word", listener.local_addr().unwrap());
    drop(listener);
    let tell: Tell = |text| HERE.lock().unwrap().push(text.to_owned());
    let export = Export::to(endpoint, Process::Job, tell).unwrap();
    let layer = export.layer().with_filter(LevelFilter::DEBUG);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        drop(debug_span!("checkpoint").entered());
        assert!(export.provider.force_flush().is_err());
    });
    let told = HERE.lock().unwrap();
    assert!(told.len() == 1 && told[0].contains("Connection refused"), "{told:?}");
    assert!(!told[0].contains("word"), "{told:?}");
}

#[test]
fn what_is_no_address_is_refused_with_a_reason() {
    let refused = Export::to("http://a b".to_owned(), Process::Job, tell).unwrap_err();
    assert!(refused.contains("is no address of a collector"), "{refused}");
}
