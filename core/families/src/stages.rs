//! The stages of a hierarchical vision model: how wide each is, how many layers it has.

use plimsoll_ground::Result;

use super::config::{Config, MAX_LAYERS, MAX_SIZE};

/// The most stages a model may have: each halves the image.
const MAX_STAGES: usize = 16;

/// The array `key`, one whole number from 1 to `most` a stage.
///
/// # Errors
/// Anything else.
pub fn of(config: &Config<'_>, key: &str, default: &[u64], most: u64) -> Result<Vec<u64>> {
    let list = match config.counts(key) {
        Some(list) => list,
        None if config.has(key) => {
            return Err(config.error(key, "it is no list of whole numbers", "give one number a stage"));
        }
        None => default.to_vec(),
    };
    if list.is_empty() || list.len() > MAX_STAGES {
        let problem = format!("{} stages", list.len());
        return Err(config.error(key, problem, format!("give from 1 to {MAX_STAGES} numbers")));
    }
    match list.iter().find(|n| !(1..=most).contains(*n)) {
        Some(n) => Err(config.error(key, format!("{n} is out of range"), format!("give numbers from 1 to {most}"))),
        None => Ok(list),
    }
}

/// `depths`: layers of each stage.
///
/// # Errors
/// No such list; too many layers in all.
pub fn depths(config: &Config<'_>, default: &[u64]) -> Result<Vec<u64>> {
    let depths = of(config, "depths", default, MAX_LAYERS)?;
    let layers: u64 = depths.iter().sum();
    if layers > MAX_LAYERS {
        let problem = format!("{layers} layers are too many");
        return Err(config.error("depths", problem, format!("give at most {MAX_LAYERS} in all")));
    }
    Ok(depths)
}

/// The array `key` with one size for each of the `depths`.
///
/// # Errors
/// No such list; another number of stages.
pub fn sizes(config: &Config<'_>, key: &str, default: &[u64], depths: &[u64]) -> Result<Vec<u64>> {
    let sizes = of(config, key, default, MAX_SIZE)?;
    if sizes.len() != depths.len() {
        let problem = format!("{} numbers, but depths has {}", sizes.len(), depths.len());
        return Err(config.error(key, problem, "give one number a stage in both"));
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use plimsoll_catalog::software::{Rules, Software};
    use serde_json::json;

    use super::{depths, sizes};
    use crate::Config;

    fn read(config: serde_json::Value) -> Result<(Vec<u64>, Vec<u64>), String> {
        let serde_json::Value::Object(map) = config else { return Err("no object".to_owned()) };
        let config = Config::hugging_face(&map, Rules::of(&Software::default()));
        let depths = depths(&config, &[2, 2]).map_err(|e| e.to_string())?;
        let sizes = sizes(&config, "hidden_sizes", &[8, 16], &depths).map_err(|e| e.to_string())?;
        Ok((depths, sizes))
    }

    #[test]
    fn lists_have_defaults_and_lengths_that_agree() {
        assert_eq!(read(json!({})), Ok((vec![2, 2], vec![8, 16])));
        assert_eq!(read(json!({"depths": [1, 3], "hidden_sizes": [4, 5]})), Ok((vec![1, 3], vec![4, 5])));
        for (config, what) in [
            (json!({"depths": [1, 2, 3]}), "depths has 3"),
            (json!({"depths": 4}), "no list"),
            (json!({"depths": []}), "0 stages"),
            (json!({"depths": [0, 2]}), "0 is out of range"),
            (json!({"depths": [2000, 2000]}), "4000 layers"),
            (json!({"hidden_sizes": [1, 99_999_999]}), "out of range"),
            (json!({"hidden_sizes": ["a"]}), "no list"),
        ] {
            let error = read(config.clone()).err().unwrap_or_default();
            assert!(error.contains(what), "{config}: {error}");
        }
    }
}
