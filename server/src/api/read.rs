//! What can be read: lists, records, comparisons.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::etag;

use super::problem::Problem;
use super::query::{CompareQuery, ListQuery, cursor};
use super::{Api, json_response};

/// Version of the answers' form.
const SCHEMA: u32 = 1;

/// `GET /api/v1/measurements`
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let asked = ListQuery::parse(query.as_deref())?;
    let tag = tag(&api, &query).await?;
    if let Some(response) = unchanged(&headers, &tag) {
        return Ok(response);
    }
    let page = api.store.list(&asked.filter, asked.cursor, asked.limit).await?;
    let answer = json!({
        "schema": SCHEMA,
        "items": page.items,
        "next": page.next.map(cursor),
        "total": page.total,
    });
    Ok(revalidated(json_response(answer.to_string()), tag))
}

/// `GET /api/v1/compare`
pub(super) async fn compare(
    State(api): State<Arc<Api>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let asked = CompareQuery::parse(query.as_deref())?;
    let tag = tag(&api, &query).await?;
    if let Some(response) = unchanged(&headers, &tag) {
        return Ok(response);
    }
    let groups = api.store.compare(asked.by, &asked.filter).await?;
    let answer = json!({"schema": SCHEMA, "by": asked.by.as_str(), "groups": groups});
    Ok(revalidated(json_response(answer.to_string()), tag))
}

/// `GET /api/v1/measurements/{id}`
pub(super) async fn record(
    State(api): State<Arc<Api>>,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    // What is no text is no id either.
    let id = id.map(|Path(id)| id).unwrap_or_default();
    if id.len() != 64 || !id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        return Err(Problem::nothing("an id is 64 hexadecimal digits in lower case, as the list gives it"));
    }
    let content = api.store.record(&id).await?;
    let content = content.ok_or_else(|| Problem::nothing("no measurement has this id"))?;
    // What is found by its content never changes.
    let tag = HeaderValue::try_from(format!("\"{id}\"")).unwrap_or(HeaderValue::from_static("\"\""));
    let mut response = unchanged(&headers, &tag).unwrap_or_else(|| json_response(content));
    let kept = HeaderValue::from_static("public, max-age=31536000, immutable");
    response.headers_mut().insert(header::CACHE_CONTROL, kept);
    response.headers_mut().insert(header::ETAG, tag);
    Ok(response)
}

/// Changes with the query and with whatever a list could show.
async fn tag(api: &Api, query: &Option<String>) -> Result<HeaderValue, Problem> {
    let revision = api.store.revision().await?;
    let hash = Sha256::digest(query.as_deref().unwrap_or_default().as_bytes());
    let short: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let version = env!("CARGO_PKG_VERSION");
    let tag = HeaderValue::try_from(format!("W/\"{version}-{revision}-{short}\""));
    Ok(tag.unwrap_or(HeaderValue::from_static("\"\"")))
}

fn unchanged(request: &HeaderMap, tag: &HeaderValue) -> Option<Response> {
    etag::matches(request, tag).then(|| revalidated(StatusCode::NOT_MODIFIED.into_response(), tag.clone()))
}

/// To be asked for again each time, which costs a 304 when nothing has changed.
fn revalidated(mut response: Response, tag: HeaderValue) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response.headers_mut().insert(header::ETAG, tag);
    response
}
