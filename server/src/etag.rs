//! `If-None-Match`: whether a client has what it asks for.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// Whether the request names this tag (weakly compared, as RFC 9110 section 13.1.2 asks).
pub(crate) fn matches(request: &HeaderMap, etag: &HeaderValue) -> bool {
    let tag = strong(etag.to_str().unwrap_or_default());
    joined(request, header::IF_NONE_MATCH).split(',').map(str::trim).any(|named| named == "*" || strong(named) == tag)
}

/// A tag without the mark of a weak one.
fn strong(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag)
}

/// All values of a header that is a list, as one list.
pub(crate) fn joined(headers: &HeaderMap, name: HeaderName) -> String {
    headers.get_all(name).iter().filter_map(|v| v.to_str().ok()).collect::<Vec<_>>().join(",")
}
