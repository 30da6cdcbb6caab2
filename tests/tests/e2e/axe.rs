//! axe-core, the accessibility checker, run inside the page.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::{accessibility, page::Page, surroundings};

/// The rules: WCAG 2.0, 2.1 and 2.2, levels A and AA.
const RULES: [&str; 5] = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];

/// Runs it and reports every violation in a line.
const RUN: &str = "
    const [rules, done] = arguments;
    axe.run(document, { runOnly: { type: 'tag', values: rules }, resultTypes: ['violations'] }).then(
        result => done({
            passed: result.passes.length,
            violations: result.violations.flatMap(rule => rule.nodes.map(
                node => `${rule.id} (${rule.impact}) at ${node.target}: ${node.failureSummary}`)),
        }),
        error => done(`${error}`));";

/// Every breach of a rule on the page as it stands.
pub async fn violations(page: &Page) -> Result<Vec<String>> {
    if page.eval("return typeof axe").await? == "undefined" {
        let script = std::fs::read_to_string(surroundings::axe()?).context("axe-core cannot be read")?;
        page.eval(&script).await?;
    }
    let result = page.client().execute_async(RUN, vec![json!(RULES)]).await?;
    let Some(violations) = result.get("violations").and_then(Value::as_array) else { bail!("axe failed: {result}") };
    ensure!(result.get("passed").and_then(Value::as_u64) > Some(10), "axe found hardly anything to check: {result}");
    Ok(violations.iter().filter_map(|line| line.as_str().map(str::to_owned)).collect())
}

/// Fails with every violation there is.
pub async fn is_clean(page: &Page, when: &str) -> Result<()> {
    // What is being found out anew is dimmed until it is there.
    accessibility::still(page).await?;
    let violations = violations(page).await?;
    ensure!(violations.is_empty(), "{when}, axe objects:\n  {}", violations.join("\n  "));
    Ok(())
}
