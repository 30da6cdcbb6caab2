//! The sizes of a decoder's attention, read from its configuration.

use plimsoll_ground::Result;

use super::config::{Config, MAX_SIZE, divide};

/// How many heads attention has, and how large they are.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// `hidden_size`.
    pub hidden: u64,
    /// `num_attention_heads`.
    pub heads: u64,
    /// `num_key_value_heads`.
    pub kv_heads: u64,
    /// `head_dim`, of queries, keys and values alike.
    pub head_dim: u64,
}

/// What a family's config class takes where the configuration does not say.
#[derive(Clone, Copy, Debug)]
pub struct HeadDefaults {
    /// `hidden_size`.
    pub hidden: u64,
    /// `num_attention_heads`.
    pub heads: u64,
    /// `num_key_value_heads`; `None`: as many as there are heads.
    pub kv_heads: Option<u64>,
    /// `head_dim`; `None`: the hidden size divided among the heads.
    pub head_dim: Option<u64>,
}

impl Heads {
    /// With `defaults` where the configuration does not say.
    ///
    /// # Errors
    /// Heads that do not divide what they share, or are too large together.
    pub fn read(config: &Config<'_>, defaults: HeadDefaults) -> Result<Self> {
        let hidden = config.size("hidden_size", defaults.hidden)?;
        let heads = config.size("num_attention_heads", defaults.heads)?;
        let kv_heads = match config.optional_size("num_key_value_heads")? {
            Some(n) => n,
            // `null` is as many as there are heads.
            None if config.mentions("num_key_value_heads") => heads,
            None => defaults.kv_heads.unwrap_or(heads),
        };
        divide(config, ("num_attention_heads", heads), ("num_key_value_heads", kv_heads))?;
        let head_dim = match defaults.head_dim {
            // A class that has a number of its own takes no `null` for it.
            Some(own) => config.size("head_dim", own)?,
            None => match config.optional_size("head_dim")? {
                Some(n) => n,
                None => divide(config, ("hidden_size", hidden), ("num_attention_heads", heads))?,
            },
        };
        Self { hidden, heads, kv_heads, head_dim }.checked(config)
    }

    /// The same with other keys and values, and another size of all.
    ///
    /// # Errors
    /// As [`Heads::read`].
    pub fn with(self, config: &Config<'_>, head_dim: u64, kv_heads: u64) -> Result<Self> {
        divide(config, ("num_attention_heads", self.heads), ("num_key_value_heads", kv_heads))?;
        Self { kv_heads, head_dim, ..self }.checked(config)
    }

    fn checked(self, config: &Config<'_>) -> Result<Self> {
        let Self { heads, head_dim, .. } = self;
        if heads * head_dim > MAX_SIZE {
            return Err(config.error(
                "head_dim",
                format!("{heads} heads of {head_dim} make {} dimensions", heads * head_dim),
                format!("choose sizes so that all heads together have at most {MAX_SIZE}"),
            ));
        }
        Ok(self)
    }

    /// How many dimensions of a head the rotary embedding turns: `int(head_dim * partial_rotary_factor)`.
    ///
    /// # Errors
    /// A factor outside 0..=1, or one that leaves an odd number.
    pub fn rotary(&self, config: &Config<'_>, legacy: &str, default: f64) -> Result<u64> {
        let nested = config.positions();
        let factor = match nested.and_then(|rope| rope.number("partial_rotary_factor")) {
            Some(factor) => factor,
            None => config.number(legacy).unwrap_or(default),
        };
        if !(0.0..=1.0).contains(&factor) {
            return Err(config.error(
                legacy,
                format!("{factor} is not a share of a head"),
                "give a number from 0 to 1",
            ));
        }
        let turned = (self.head_dim as f64 * factor) as u64;
        if !turned.is_multiple_of(2) || turned == 0 {
            return Err(config.error(
                if config.has(legacy) { legacy } else { "head_dim" },
                format!("rotary embeddings turn pairs, but {turned} dimensions of a head are turned"),
                "choose sizes that give an even number above 0",
            ));
        }
        Ok(turned)
    }
}
