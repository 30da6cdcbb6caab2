//! The measurements over HTTP: `/api/v1`.

mod access;
mod body;
mod hulls;
mod problem;
mod query;
mod rate;
mod read;
mod turns;
mod upload;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::Semaphore;
use tower_http::timeout::TimeoutLayer;

use crate::host::Names;
use crate::store::Store;

pub(crate) use problem::Problem;
use rate::Rate;
pub(crate) use rate::neighbourhood;
use turns::Turns;

/// The record's JSON Schema, as it is in the project's documentation.
const RECORD_SCHEMA: &str = include_str!("../../../docs/measurement.schema.json");

/// What can be asked here, for programs.
const OPENAPI: &str = include_str!("openapi.json");

/// Uploads that are read at a time; a body takes some megabytes at most.
const UPLOADS: usize = 64;

/// Records that are checked at a time at most: each may take some hundred megabytes.
const WORKERS: usize = 8;

/// How long any request to the API may take, its body and all waiting included.
const LONGEST: Duration = Duration::from_secs(60);

/// Who is on the other end of a connection; put into every request by the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub SocketAddr);

/// How uploads are let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether only this machine reaches the server: uploads then need no token as long as there is none.
    pub local: bool,
    /// Uploads a minute for each token, and for each address without one; 0 is no limit.
    pub uploads_per_minute: u32,
    /// Proxies in front of the server whose `X-Forwarded-For` is believed.
    pub proxies: usize,
    /// Names besides this machine's own that a server which only this machine reaches answers to; with proxies in
    /// front it answers to all.
    pub hosts: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { local: false, uploads_per_minute: 600, proxies: 0, hosts: Vec::new() }
    }
}

/// The measurements and how they may be added to.
#[derive(Debug)]
pub struct Api {
    store: Store,
    settings: Settings,
    /// Apart from the others, so that no crowd without tokens takes the places of those who have one.
    tokens: Rate,
    peers: Rate,
    uploads: Semaphore,
    /// Records that are checked at a time, each of which keeps a processor busy: half of them, so that reading goes on.
    work: Arc<Turns>,
}

impl Api {
    /// Of the measurements in `store`.
    pub fn new(store: Store, settings: Settings) -> Self {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            store,
            tokens: Rate::per_minute(settings.uploads_per_minute),
            peers: Rate::per_minute(settings.uploads_per_minute),
            settings,
            uploads: Semaphore::new(UPLOADS),
            work: Turns::new((processors / 2).clamp(1, WORKERS)),
        }
    }

    /// Proxies in front of the server.
    pub(crate) fn proxies(&self) -> usize {
        self.settings.proxies
    }

    /// The names it answers to.
    pub(crate) fn names(&self) -> Names {
        match (self.settings.local, self.settings.proxies) {
            (true, 0) => Names::Here(self.settings.hosts.clone()),
            _ => Names::Any,
        }
    }

    /// The measurements.
    pub fn store(&self) -> &Store {
        &self.store
    }
}

/// The routes; without an API they say that there is none.
pub(crate) fn routes(api: Option<Arc<Api>>) -> Router {
    let fixed = |text: &'static str, kind: &'static str| {
        get(move || async move {
            let kept = HeaderValue::from_static("public, max-age=3600");
            ([(header::CONTENT_TYPE, HeaderValue::from_static(kind)), (header::CACHE_CONTROL, kept)], text)
        })
    };
    let routes = Router::new()
        .route("/api/v1/schema/measurement.json", fixed(RECORD_SCHEMA, "application/schema+json"))
        .route("/api/v1/openapi.json", fixed(OPENAPI, "application/json"));
    let routes = match api {
        Some(api) => routes.merge(
            Router::new()
                .route("/api/v1/measurements", get(read::list).post(upload::upload))
                .route("/api/v1/measurements/{id}", get(read::record))
                .route("/api/v1/hulls/{id}", get(hulls::hull).put(hulls::put))
                .route("/api/v1/compare", get(read::compare))
                .route("/readyz", get(ready))
                .with_state(api),
        ),
        None => routes.route("/readyz", get(async || ([(header::CACHE_CONTROL, "no-store")], "ready\n"))).route(
            "/api/v1/{*rest}",
            axum::routing::any(async || {
                Problem::nothing("this server keeps no measurements: it was started with --no-database")
            }),
        ),
    };
    routes
        .route(
            "/api/{*rest}",
            axum::routing::any(async || Problem::nothing("/api/v1/openapi.json tells what there is")),
        )
        .method_not_allowed_fallback(async || {
            Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method",
                "That cannot be done here",
                "/api/v1/openapi.json tells what can",
            )
        })
        .layer(TimeoutLayer::with_status_code(StatusCode::SERVICE_UNAVAILABLE, LONGEST))
}

/// Whether requests can be answered, for whatever sends them here.
async fn ready(State(api): State<Arc<Api>>) -> Response {
    let no_store = [(header::CACHE_CONTROL, "no-store")];
    match api.store.ready().await {
        Ok(()) => (no_store, "ready\n").into_response(),
        Err(error) => Problem::from(error).into_response(),
    }
}

fn json_response(text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
