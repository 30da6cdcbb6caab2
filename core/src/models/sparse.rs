//! What configurations of mixtures of experts say.

use super::config::Config;
use crate::Result;

/// How many experts there are.
///
/// # Errors
/// No size, or more than any published model has.
pub fn experts(config: &Config<'_>, key: &str, default: u64) -> Result<u64> {
    const MOST: u64 = 4096;
    // transformers takes either name for the other.
    let key = if config.has(key) {
        key
    } else {
        ["num_experts", "num_local_experts"].into_iter().find(|k| config.has(k)).unwrap_or(key)
    };
    let count = config.size(key, default)?;
    if count > MOST {
        return Err(config.error(key, format!("{count} experts are too many"), format!("give at most {MOST}")));
    }
    Ok(count)
}

/// How many of `count` experts a token goes to.
///
/// # Errors
/// More than there are.
pub fn chosen(config: &Config<'_>, default: u64, count: u64) -> Result<u64> {
    let top_k = config.size("num_experts_per_tok", default)?;
    if top_k > count {
        return Err(config.error(
            "num_experts_per_tok",
            format!("{top_k} of {count} experts"),
            "choose no more experts than there are",
        ));
    }
    Ok(top_k)
}

/// What is not estimated yet.
///
/// # Errors
/// An auxiliary loss, or noise on the router's input.
pub fn refuse(config: &Config<'_>) -> Result<()> {
    if config.flag("output_router_logits", false)? {
        return Err(config.error("output_router_logits", "the auxiliary loss is not estimated yet", "set it to false"));
    }
    if config.number("router_jitter_noise").is_some_and(|noise| noise > 0.0) {
        return Err(config.error("router_jitter_noise", "is not estimated yet", "set it to 0"));
    }
    Ok(())
}
