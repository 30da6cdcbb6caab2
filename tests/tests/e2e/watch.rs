//! What must not happen on any page: anything in the console, any breach of the content security policy.

use anyhow::{Result, ensure};
use fantoccini::Client;
use serde_json::{Value, json};

use crate::command::{console, devtools};

/// Runs in every page before its own scripts. It keeps breaches over reloads in what the tab remembers.
const RECORDER: &str = r#"
    addEventListener("securitypolicyviolation", event => {
        const seen = JSON.parse(sessionStorage.getItem("breaches") ?? "[]");
        seen.push(`${event.effectiveDirective} forbids ${event.blockedURI} (${event.sourceFile}:${event.lineNumber})`);
        sessionStorage.setItem("breaches", JSON.stringify(seen));
    });
"#;

/// Starts watching; before the first page is opened.
pub async fn start(client: &Client) -> Result<()> {
    devtools(client, "Page.addScriptToEvaluateOnNewDocument", json!({ "source": RECORDER })).await?;
    Ok(())
}

/// Everything that was seen and should not have been; asking empties the console's part.
pub async fn findings(client: &Client) -> Result<Vec<String>> {
    let mut findings: Vec<String> = console(client).await?.iter().filter(|entry| is_finding(entry)).map(line).collect();
    let breaches = client.execute("return JSON.parse(sessionStorage.getItem('breaches') ?? '[]')", Vec::new()).await?;
    for breach in breaches.as_array().into_iter().flatten() {
        findings.push(format!("policy: {}", breach.as_str().unwrap_or_default()));
    }
    Ok(findings)
}

/// Fails when anything was found.
pub async fn nothing_wrong(client: &Client) -> Result<()> {
    let findings = findings(client).await?;
    ensure!(findings.is_empty(), "the browser complained:\n  {}", findings.join("\n  "));
    Ok(())
}

/// `DEBUG` and `INFO` are what a page may say.
fn is_finding(entry: &Value) -> bool {
    !matches!(entry.get("level").and_then(Value::as_str), Some("DEBUG" | "INFO"))
}

fn line(entry: &Value) -> String {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or("?");
    format!("{} {}: {}", text("level"), text("source"), text("message"))
}
