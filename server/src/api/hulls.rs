//! `PUT` and `GET /api/v1/hulls/{id}`: recorded models, by the SHA-256 of their files.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use plimsoll_core::Error;
use plimsoll_core::ledger::hull::{Hull, MOST_BYTES};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use crate::etag;

use super::problem::Problem;
use super::upload::admitted;
use super::{Api, body, json_response};

/// How long one may wait for its turn.
const TURN: Duration = Duration::from_secs(10);

/// What a path names, where it is a hash.
fn named(id: Result<Path<String>, PathRejection>) -> Result<String, Problem> {
    let id = id.map(|Path(id)| id).unwrap_or_default();
    match id.len() == 64 && id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        true => Ok(id),
        false => Err(Problem::nothing("an id is the SHA-256 of the file, 64 hexadecimal digits in lower case")),
    }
}

pub(super) async fn hull(
    State(api): State<Arc<Api>>,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = named(id)?;
    let content = api.store.hull(&id).await?.ok_or_else(|| Problem::nothing("no hull has this hash"))?;
    // What is found by its content never changes.
    let tag = HeaderValue::try_from(format!("\"{id}\"")).unwrap_or(HeaderValue::from_static("\"\""));
    let mut response = match etag::matches(&headers, &tag) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => Response::new(Body::from(content)),
    };
    let kept = HeaderValue::from_static("public, max-age=31536000, immutable");
    response.headers_mut().insert(header::CACHE_CONTROL, kept);
    response.headers_mut().insert(header::ETAG, tag);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    Ok(response)
}

pub(super) async fn put(
    State(api): State<Arc<Api>>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, content) = request.into_parts();
    let (caller, token) = admitted(&api, &parts).await?;
    let id = named(id)?;
    let busy = || {
        let title = "The server has its hands full";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", title, "try again in some seconds").later(5)
    };
    let _turn = timeout(TURN, api.uploads.acquire()).await.ok().and_then(Result::ok).ok_or_else(busy)?;
    let bytes = body::read(content).await?;
    let place = timeout(TURN, api.work.take(&caller)).await.ok().flatten().ok_or_else(busy)?;
    let wanted = id.clone();
    let checked = tokio::task::spawn_blocking(move || {
        let _place = place;
        checked(&wanted, &bytes).map(|()| bytes)
    });
    let failed = |_| {
        let title = "The server failed";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", title, "please report it with the hull")
    };
    let bytes = checked.await.map_err(failed)??;
    let new = api.store.put_hull(&id, &bytes, token.as_deref()).await?;
    let mut response = json_response(json!({"id": id, "url": format!("/api/v1/hulls/{id}")}).to_string());
    *response.status_mut() = if new { StatusCode::CREATED } else { StatusCode::OK };
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Whether it is a hull whose witnesses come out, under its own hash.
fn checked(id: &str, bytes: &[u8]) -> Result<(), Problem> {
    let refused =
        |error: Error| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "hull", "That is no hull", "").with(vec![error]);
    if bytes.len() > MOST_BYTES {
        let detail = format!("more than {MOST_BYTES} bytes are no hull");
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-long", "The hull is too long", detail));
    }
    let hash: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    if hash != id {
        let error =
            Error::new("hull", "its SHA-256 is not the one in the address", "send it to the address of its own");
        return Err(refused(error));
    }
    Hull::from_bytes(bytes).map(drop).map_err(refused)
}
