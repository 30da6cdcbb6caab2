//! A client that asks one server again and again over one connection, and does nothing else with the time.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

/// Longer than any answer may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// An open connection.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
    address: String,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// `Retry-After` in seconds, where there is one.
    pub retry_after: Option<u64>,
    /// The body.
    pub body: String,
}

impl Client {
    /// Connects to `127.0.0.1:7070`.
    ///
    /// # Errors
    /// Nobody listens.
    pub fn connect(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream), address: address.to_owned() })
    }

    /// `GET path`.
    ///
    /// # Errors
    /// The connection broke off.
    pub fn get(&mut self, path: &str) -> Result<Reply> {
        self.ask(&format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.address))
    }

    /// Uploads a record.
    ///
    /// # Errors
    /// The connection broke off.
    pub fn upload(&mut self, record: &str) -> Result<Reply> {
        let (address, length) = (&self.address, record.len());
        self.ask(&format!(
            "POST /api/v1/measurements HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{record}"
        ))
    }

    fn ask(&mut self, request: &str) -> Result<Reply> {
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let status = line.split_whitespace().nth(1).and_then(|code| code.parse().ok());
        let status = status.with_context(|| format!("no answer, but {line:?}"))?;
        let (mut length, mut retry_after) = (0, None);
        loop {
            line.clear();
            ensure!(self.stream.read_line(&mut line)? > 0, "the answer broke off");
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            match name {
                "content-length" => length = value.parse()?,
                "retry-after" => retry_after = value.parse().ok(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(Reply { status, retry_after, body: String::from_utf8(body)? })
    }
}

impl Reply {
    /// The id of the record that was uploaded.
    pub fn id(&self) -> Option<&str> {
        self.body.split_once("\"id\":\"")?.1.split('"').next()
    }
}
