//! What a page may do: the headers that say so to the browser.

use axum::http::{HeaderName, HeaderValue, header};

/// Only files from this server: the planner has no script and no style inline. `'wasm-unsafe-eval'` is the permission to
/// compile WebAssembly, and nothing else.
const CONTENT_SECURITY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; \
     object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'",
);

/// Features the planner never uses. The clipboard stays allowed: the copy button needs it.
const PERMISSIONS: HeaderValue = HeaderValue::from_static(
    "accelerometer=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), magnetometer=(), microphone=(), \
     midi=(), payment=(), usb=()",
);

/// The headers every response carries.
pub(crate) const HEADERS: [(HeaderName, HeaderValue); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    // A share link holds somebody's model: it is told to nobody.
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (HeaderName::from_static("permissions-policy"), PERMISSIONS),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY),
];
