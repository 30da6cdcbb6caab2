//! The server asked without a socket.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use plimsoll_server::store::Store;
use plimsoll_server::{Api, File, Settings, Site, app};
use serde_json::Value;
use tower::ServiceExt as _;

pub const MEASUREMENTS: &str = "/api/v1/measurements";

/// A server that only its own machine reaches, without a limit on the rate.
pub const LOCAL: Settings = Settings { local: true, uploads_per_minute: 0, proxies: 0, hosts: Vec::new() };

/// What a program of the machine sends with a record.
pub const JSON: [(&str, &str); 2] = [("host", "127.0.0.1:7070"), ("content-type", "application/json")];

#[derive(Clone)]
pub struct Server {
    app: Router,
}

pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Server {
    pub fn new(store: &Store, settings: Settings) -> Self {
        let site = Site::new([File::new("index.html", b"<p>planner</p>".as_slice())]);
        Self { app: app(site, Some(Arc::new(Api::new(store.clone(), settings)))) }
    }

    pub async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.app.clone().oneshot(request.body(body.into()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, 64 << 20).await.unwrap().to_vec();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], Body::empty()).await
    }

    pub async fn post(&self, body: impl Into<Body>) -> Answer {
        self.ask("POST", MEASUREMENTS, &JSON, body).await
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&self.body)))
    }

    /// The problem it is, which must be a complete one.
    pub fn problem(&self) -> Value {
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert_eq!(self.header("cache-control"), "no-store");
        let problem = self.json();
        assert_eq!(problem["status"], self.status.as_u16());
        for key in ["type", "title", "detail"] {
            assert!(problem[key].as_str().is_some_and(|text| !text.is_empty()), "no {key} in {problem}");
        }
        problem
    }
}
