//! The routes: which request gets what.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use percent_encoding::percent_decode_str;
use tower_http::{catch_panic::CatchPanicLayer, timeout::TimeoutLayer};

use crate::{
    api::{Api, Problem, routes},
    encoding::negotiate,
    etag::{joined, matches},
    policy::HEADERS,
    settle::settle,
    site::{Asset, Site},
};

/// How long a handler may take. Everything is in memory: one that takes longer is stuck.
const HANDLER_TIMEOUT: Duration = Duration::from_secs(10);

/// What `GET /` answers where there is no planner.
const NO_PLANNER: &str = "This plimsoll was built without the planner.\n\n\
    In a checkout of the project, `cargo install --path probe --locked` installs one that has it, and `cargo xtask serve` \
    builds it and serves it at once. `plimsoll serve --planner DIRECTORY` serves one that is built already.\n";

/// Answers requests: the planner's files from `site`, measurements from `api` where there is one.
pub fn app(site: Site, api: Option<Arc<Api>>) -> Router {
    let mut pages = Router::new().route("/healthz", get(health));
    // In place of the planner's own, which says that there is no interface where it is hosted.
    if api.is_some() {
        pages = pages.route("/site.json", get(with_api));
    }
    pages
        .fallback(file)
        .with_state(Arc::new(site))
        .layer(TimeoutLayer::with_status_code(StatusCode::SERVICE_UNAVAILABLE, HANDLER_TIMEOUT))
        .merge(routes(api))
        .layer(middleware::from_fn(settle))
        .layer(CatchPanicLayer::custom(|_| failed()))
        .layer(middleware::from_fn(add_headers))
}

/// Tells the planner where the measurements are.
async fn with_api() -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-cache")];
    (headers, "{ \"schema\": 1, \"api\": \"api/v1\" }\n").into_response()
}

/// What a request gets that met a mistake of ours; the others go on.
fn failed() -> Response {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", "The server failed", "please report what was asked")
        .into_response()
}

/// Whether the server is alive, for whatever watches it.
async fn health() -> Response {
    let text = concat!("ok plimsoll ", env!("CARGO_PKG_VERSION"), "\n");
    ([(header::CACHE_CONTROL, "no-store")], text).into_response()
}

/// The policy goes on every response, errors included.
async fn add_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.headers_mut().extend(HEADERS);
    response
}

/// A file, or the page in place of a route of the planner.
async fn file(State(site): State<Arc<Site>>, request: Request) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET, HEAD")], "use GET or HEAD\n").into_response();
    }
    let head = request.method() == Method::HEAD;
    if site.is_empty() {
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::CACHE_CONTROL, "no-store")], NO_PLANNER).into_response();
    }
    let path = percent_decode_str(request.uri().path()).decode_utf8_lossy();
    match site.asset(&path).or_else(|| site.index().filter(|_| is_page(&path, request.headers()))) {
        Some(asset) => send(asset, request.headers(), head),
        None => {
            (StatusCode::NOT_FOUND, [(header::CACHE_CONTROL, "no-store")], "there is nothing here\n").into_response()
        }
    }
}

/// Whether a browser asks for a page rather than for a part of one. A part that is missing must be a 404: given the
/// page instead, the browser would complain about its type and hide what went wrong.
fn is_page(path: &str, headers: &HeaderMap) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    let accept = headers.get_all(header::ACCEPT);
    !last.contains('.') && accept.iter().filter_map(|v| v.to_str().ok()).any(|v| v.contains("text/html"))
}

fn send(asset: &Asset, request: &HeaderMap, head: bool) -> Response {
    let accept = joined(request, header::ACCEPT_ENCODING);
    let encoding = negotiate(&accept, |e| asset.form(e).is_some());
    // `negotiate` answers with a form that is stored.
    let Some(stored) = asset.form(encoding) else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };

    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, asset.cache_control.clone());
    headers.insert(header::ETAG, stored.etag.clone());
    if asset.varies() {
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    }
    if matches(request, &stored.etag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    headers.insert(header::CONTENT_TYPE, asset.content_type.clone());
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(stored.content.len()));
    if encoding.suffix() != "" {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding.token()));
    }
    if !head {
        *response.body_mut() = Body::from(stored.content.clone());
    }
    response
}
