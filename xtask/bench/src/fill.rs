//! Fills a database with synthetic records, for `cargo xtask bench load`: `fill sqlite://FILE COUNT`.
//!
//! The records' texts are whole and different; what they are filtered and compared by is made up, so that a hundred
//! thousand need not be estimated. Their card says so, and nothing but a test's own database gets them.

use std::error::Error;

use plimsoll_bench::synthetic::{Template, record};
use plimsoll_server::store::{Entry, FACETS, Facet, Store, Target};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::task::JoinSet;

/// Records on their way at a time: what the store writes together.
const TOGETHER: usize = 64;

/// How many values each facet has, in the order of [`Facet::ALL`].
const VALUES: [u64; FACETS] = [30, 80, 6, 40, 3, 5, 12, 2, 2, 2, 8];

/// Records of the same run.
const ALIKE: u64 = 5;

fn entry(template: &Template, model: &Entry, number: u64) -> Result<Entry, Box<dyn Error + Send + Sync>> {
    let content = template.write(number);
    let id: String = Sha256::digest(content.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    // A number that is the same every time, and looks like any other.
    let drawn = |salt: u64, of: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt.wrapping_mul(0xff51_afd7)) % of;
    let mut entry = model.clone();
    let mut point: Value = serde_json::from_str(&entry.point)?;
    point["id"] = id.clone().into();
    for ((facet, value), salt) in Facet::ALL.into_iter().zip(&mut entry.facets).zip(1..) {
        let values = VALUES.get(facet as usize).copied().unwrap_or(1);
        *value = format!("synthetic {} {}", facet.name(), drawn(salt, values));
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

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut args = std::env::args().skip(1);
    let target: Target = args.next().ok_or("which database?")?.parse()?;
    let count: u64 = args.next().ok_or("how many records?")?.parse()?;
    let model = Entry::new(&record(0)).map_err(|errors| format!("{errors:?}"))?;
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
