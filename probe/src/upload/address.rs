//! Where records go: the server's address, and whether it is safe to send there.

use std::fmt;

use plimsoll_core::Error;
use url::{Host, Url};

/// Where the server takes records.
const ENDPOINT: &str = "/api/v1/measurements";

/// The address records are posted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(Url);

impl Address {
    /// From the server's address, or from that of the endpoint itself.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let refuse = |problem: String| Err(Error::new("--to", problem, "write it like https://plimsoll.example.org"));
        let mut url = match Url::parse(text) {
            Ok(url) => url,
            Err(error) => return refuse(format!("{text:?} is no address: {error}")),
        };
        if !matches!(url.scheme(), "http" | "https") {
            return refuse(format!("{text:?} does not begin with https:// or http://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            // Not repeated: it may be a password.
            return refuse("the address holds a user's name; tokens are given with --token-env".to_owned());
        }
        if url.query().is_some() || url.fragment().is_some() {
            return refuse(format!("{text:?} has a query or a fragment"));
        }
        let path = url.path().trim_end_matches('/');
        let path = if path.ends_with(ENDPOINT) { path.to_owned() } else { format!("{path}{ENDPOINT}") };
        url.set_path(&path);
        Ok(Self(url))
    }

    /// Refuses to send in clear text to another machine, unless the user insists.
    pub fn check(&self, insecure: bool) -> Result<(), Error> {
        if insecure || self.0.scheme() == "https" || self.is_loopback() {
            return Ok(());
        }
        Err(Error::new(
            "--to",
            format!(
                "{} is another machine, and http:// lets anybody on the way read the record and the token",
                self.host()
            ),
            "use https://, or give --insecure in a network you trust",
        ))
    }

    /// Whether it is this machine.
    pub fn is_loopback(&self) -> bool {
        match self.0.host() {
            Some(Host::Ipv4(ip)) => ip.is_loopback(),
            Some(Host::Ipv6(ip)) => ip.is_loopback(),
            // The name is reserved for it (RFC 6761).
            Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            None => false,
        }
    }

    /// The machine's name.
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    /// The whole address.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_or_the_endpoint() {
        for (text, expected) in [
            ("https://a.org", "https://a.org/api/v1/measurements"),
            ("https://a.org/", "https://a.org/api/v1/measurements"),
            ("https://A.org/x/", "https://a.org/x/api/v1/measurements"),
            ("http://127.0.0.1:7070/api/v1/measurements/", "http://127.0.0.1:7070/api/v1/measurements"),
        ] {
            assert_eq!(Address::parse(text).unwrap().as_str(), expected);
        }
        for text in ["", "a.org", "ftp://a.org", "https://u:secret@a.org", "https://a.org/?x", "https://a.org/#x"] {
            let error = Address::parse(text).unwrap_err();
            assert_eq!(error.key, "--to");
            assert!(!error.problem.contains("secret"));
        }
    }

    #[test]
    fn clear_text_stays_on_this_machine() {
        for text in ["http://127.0.0.1:1", "http://[::1]", "http://localhost:7070", "https://a.org"] {
            Address::parse(text).unwrap().check(false).unwrap();
        }
        for text in ["http://a.org", "http://192.168.1.5", "http://localhost.a.org", "http://128.0.0.1"] {
            let address = Address::parse(text).unwrap();
            assert!(address.check(false).unwrap_err().hint.contains("--insecure"));
            address.check(true).unwrap();
        }
    }
}
