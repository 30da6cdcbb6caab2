//! What a page may do: the headers that say so to the browser.

use axum::http::{HeaderName, HeaderValue, header};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};

use crate::html;

/// Features the planner never uses. The clipboard stays allowed: the copy button needs it.
const PERMISSIONS: &str = "accelerometer=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), \
    magnetometer=(), microphone=(), midi=(), payment=(), usb=()";

/// The headers every response carries; the Content-Security-Policy allows exactly the inline scripts and styles of
/// `index` (by hash) and otherwise only files from this server.
pub(crate) fn headers(index: Option<&str>) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = vec![
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        // A share link holds somebody's model: it is told to nobody.
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (HeaderName::from_static("permissions-policy"), HeaderValue::from_static(PERMISSIONS)),
        (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    ];
    // Only base64 and fixed text: always a valid header value.
    if let Ok(value) = HeaderValue::from_str(&content_security_policy(index.unwrap_or_default())) {
        headers.push((header::CONTENT_SECURITY_POLICY, value));
    }
    headers
}

/// `'wasm-unsafe-eval'` is the permission to compile WebAssembly, and nothing else.
fn content_security_policy(index: &str) -> String {
    let inline = html::inline(index);
    let (scripts, styles) = (hashes(&inline.scripts), hashes(&inline.styles));
    format!(
        "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'{scripts}; style-src 'self'{styles}; \
         img-src 'self' data:; object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
    )
}

fn hashes(texts: &[String]) -> String {
    texts.iter().map(|text| format!(" 'sha256-{}'", STANDARD.encode(Sha256::digest(text.as_bytes())))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_one_browsers_compute() {
        // The example of the Content Security Policy Level 3 specification, section 8.
        let csp = content_security_policy("<script>alert('Hello, world.');</script>");
        assert!(csp.contains("'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng='"), "{csp}");
    }

    #[test]
    fn nothing_inline_is_allowed_without_a_hash() {
        let csp = content_security_policy("<script src=a.js></script>");
        assert!(!csp.contains("unsafe-inline") && !csp.contains("sha256"), "{csp}");
    }
}
