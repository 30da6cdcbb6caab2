//! A server that answers as the test wants it, one connection after the other, and remembers what came.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the server does with one connection.
pub enum Reply {
    /// Reads the request and says this.
    Raw(String),
    /// Breaks the connection off in the middle of the request.
    Reset,
    /// Reads the request and is silent.
    Nothing,
    /// Reads the request and takes its time.
    Later(String),
}

impl Reply {
    pub fn says(text: &str) -> Self {
        Self::Raw(text.to_owned())
    }

    pub fn slow(text: &str) -> Self {
        Self::Later(text.to_owned())
    }
}

/// A request that came.
#[derive(Clone, Debug)]
pub struct Request {
    pub line: String,
    headers: Vec<(String, String)>,
    pub body: String,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// The server; it stops with the test.
pub struct Port {
    pub address: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Port {
    pub fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, replies) = (Arc::clone(&requests), replies.into_iter().collect::<Vec<_>>());
        std::thread::spawn(move || {
            let mut silent = Vec::new();
            for reply in replies {
                let Ok((mut stream, _)) = listener.accept() else { return };
                if matches!(reply, Reply::Reset) {
                    // What is left unread makes the system send a reset.
                    let _ = stream.read(&mut [0; 10]);
                    continue;
                }
                let request = read(&stream);
                seen.lock().unwrap().push(request);
                match reply {
                    Reply::Raw(text) => say(&mut stream, &text),
                    Reply::Later(text) => {
                        std::thread::sleep(Duration::from_millis(400));
                        say(&mut stream, &text);
                    }
                    Reply::Nothing | Reply::Reset => silent.push(stream),
                }
            }
            // Further connections are accepted by nobody, and the silent ones stay open.
            drop(listener);
            std::thread::sleep(Duration::from_secs(60));
        });
        Self { address, requests }
    }

    /// The requests that were read whole.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    pub fn count(&self) -> usize {
        self.requests().len()
    }
}

/// An address where nobody listens.
pub fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

fn say(stream: &mut TcpStream, text: &str) {
    // The head as given, and the end of the answer by the end of the connection.
    let text = text.replacen("\r\n", "\r\nConnection: close\r\n", 1);
    let _ = stream.write_all(text.as_bytes());
}

fn read(stream: &TcpStream) -> Request {
    let mut reader = BufReader::new(stream);
    let line = |reader: &mut BufReader<&TcpStream>| {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    let first = line(&mut reader);
    let mut headers = Vec::new();
    loop {
        let header = line(&mut reader);
        let Some((key, value)) = header.split_once(':') else { break };
        headers.push((key.to_owned(), value.trim().to_owned()));
    }
    let mut request = Request { line: first, headers, body: String::new() };
    let length: usize = request.header("content-length").unwrap().parse().unwrap();
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    request.body = String::from_utf8(body).unwrap();
    request
}
