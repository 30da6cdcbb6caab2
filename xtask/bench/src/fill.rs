//! Fills a database with synthetic records.
//!
//! The records' texts are whole and different; what they are filtered and compared by is made up, so that a hundred
//! thousand need not be estimated. Their card says so, and nothing but a test's own database gets them.

use anyhow::{Result, anyhow};
use plimsoll_core::measurement::Facet;
use plimsoll_server::store::{Entry, Store, Target};
use plimsoll_testkit::synthetic::{Template, record};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::task::JoinSet;

/// Records on their way at a time: what the store writes together.
const TOGETHER: usize = 64;

/// How many values each facet has, in the order of [`Facet::ALL`].
const VALUES: [u64; Facet::ALL.len()] = [30, 80, 6, 40, 3, 5, 12, 2, 2, 2, 8];

/// Records of the same run.
const ALIKE: u64 = 5;

fn entry(template: &Template, model: &Entry, number: u64) -> Result<Entry> {
    let content = template.write(number);
    let id: String = Sha256::digest(content.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    // A number that is the same every time, and looks like any other.
    let drawn = |salt: u64, of: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt.wrapping_mul(0xff51_afd7)) % of;
    let mut entry = model.clone();
    let mut point: Value = serde_json::from_str(&entry.point)?;
    point["id"] = id.clone().into();
    for ((facet, value), salt) in Facet::ALL.iter().copied().zip(&mut entry.facets).zip(1..) {
        let values = VALUES.get(facet as usize).copied().unwrap_or(1);
        *value = format!("synthetic {} {}", facet.as_str(), drawn(salt, values));
    }
    for (measured, salt) in entry.figures.measured.iter_mut().zip(100..) {
        // Up to 10 % either way.
        *measured = measured.map(|bytes| bytes / 1000 * (900 + drawn(salt, 200)));
    }
    entry.neighbourhood = Some(format!("synthetic {}", number / ALIKE));
    entry.point = point.to_string();
    (entry.id, entry.content) = (id, content);
    Ok(entry)
}

/// Puts so many into a database.
///
/// # Errors
/// The database cannot be opened, or does not take them.
pub fn run(database: &str, count: u64) -> Result<()> {
    let target: Target = database.parse().map_err(|problem| anyhow!("{database}: {problem}"))?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(fill(target, count))
}

async fn fill(target: Target, count: u64) -> Result<()> {
    let model = Entry::new(&record(0)).map_err(|errors| anyhow!("{errors:?}"))?;
    let (store, template) = (Store::open(&target).await?, Template::new());
    let mut under_way = JoinSet::new();
    for number in 0..count {
        if under_way.len() >= TOGETHER {
            under_way.join_next().await.transpose()?.transpose()?;
        }
        let (store, entry) = (store.clone(), entry(&template, &model, number)?);
        under_way.spawn(async move { store.put(entry, None).await });
    }
    while let Some(kept) = under_way.join_next().await {
        kept??;
    }
    store.close().await;
    Ok(())
}
