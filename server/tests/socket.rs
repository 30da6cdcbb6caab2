//! The server on a real socket: starting, answering, stopping, and a port that is taken.
#![allow(clippy::unwrap_used, reason = "a helper that fails, fails the test")]

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use plimsoll_server::{File, ServeError, Site, serve};
use tokio::{sync::oneshot, task::JoinHandle};

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn site() -> Site {
    Site::new([File::new("index.html", b"<p>planner</p>".as_slice())])
}

struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ServeError>>,
}

async fn start() -> Running {
    let (tell, told) = oneshot::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(serve(ANY_PORT, site(), None, |address| tell.send(address).unwrap(), async {
        let _ = stopped.await;
    }));
    Running { address: told.await.unwrap(), stop, task }
}

/// Sends `text` on a new connection and reads until the server closes it.
async fn talk(address: SocketAddr, text: &'static str) -> String {
    tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_answers_and_stops() {
    let server = start().await;
    let answer = talk(server.address, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("<p>planner</p>"), "{answer}");
    let answer = talk(server.address, "HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(answer.contains("content-length: 14\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    let answer = talk(server.address, "this is not HTTP\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");

    // A connection that is open but idle must not hold the server up.
    let idle = TcpStream::connect(server.address).unwrap();
    let asked = Instant::now();
    server.stop.send(()).unwrap();
    server.task.await.unwrap().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(6), "took {:?} to stop", asked.elapsed());
    drop(idle);
    assert!(TcpStream::connect(server.address).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_port_says_by_whom_and_what_to_do() {
    let server = start().await;
    let error = serve(server.address, site(), None, |_| {}, async {}).await.unwrap_err();
    assert!(matches!(error, ServeError::AlreadyServing(..)), "{error}");
    assert!(error.to_string().contains(&format!("http://{}/", server.address)), "{error}");

    let other = std::net::TcpListener::bind(ANY_PORT).unwrap();
    let error = serve(other.local_addr().unwrap(), site(), None, |_| {}, async {}).await.unwrap_err();
    assert!(matches!(error, ServeError::Taken(..)), "{error}");
    assert!(error.hint().contains("--listen 127.0.0.1:"), "{}", error.hint());
}

#[tokio::test]
async fn an_address_of_another_machine_is_explained() {
    // TEST-NET-1 (RFC 5737): never an address of this machine.
    let error = serve("192.0.2.1:7070".parse().unwrap(), site(), None, |_| {}, async {}).await.unwrap_err();
    assert!(matches!(error, ServeError::Bind(..)), "{error}");
    assert!(error.hint().contains("--listen"), "{}", error.hint());
}

#[tokio::test]
async fn without_a_planner_there_is_nothing_to_serve() {
    let error = serve(ANY_PORT, Site::new([]), None, |_| {}, async {}).await.unwrap_err();
    assert!(error.hint().contains("cargo xtask serve"), "{}", error.hint());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_names_one_host() {
    let server = start().await;
    for (text, status) in [
        ("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: 127.0.0.1:80@evil\r\nConnection: close\r\n\r\n", "400"),
        ("GET / HTTP/1.0\r\n\r\n", "200"),
    ] {
        let answer = talk(server.address, text).await;
        assert_eq!(answer.split(' ').nth(1), Some(status), "{text}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_body_leaves_the_connection_in_order_or_says_that_it_ends() {
    let server = start().await;
    tokio::task::spawn_blocking(move || {
        for length in [10, 200_000, 900_000] {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
            for _ in 0..20 {
                stream.write_all(head.as_bytes()).unwrap();
                stream.write_all(&vec![b'x'; length]).unwrap();
                let answer = one_answer(&mut stream);
                assert!(answer.starts_with("HTTP/1.1 405"), "{length}: {answer}");
                assert!(!answer.contains("connection: close"), "{length}: {answer}");
            }
        }
        // More than is worth reading: it is said that there will be no next request.
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n").unwrap();
        let answer = one_answer(&mut stream);
        assert!(answer.starts_with("HTTP/1.1 405") && answer.contains("connection: close"), "{answer}");
    })
    .await
    .unwrap();
}

/// Reads the head of one answer and the body it announces.
fn one_answer(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
        if answer.ends_with(b"\r\n\r\n") {
            break;
        }
    }
    let head = String::from_utf8(answer).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    stream.read_exact(&mut vec![0; length]).unwrap();
    head
}
