//! What a tape is a recording of, where it is not of the model as it was named: the same with adapters, or with other attention.

use std::fmt;

use plimsoll_ground::{Error, Result, quoted};
use serde::{Deserialize, Serialize};

/// What was changed of the model before it was recorded; nothing, where it is the model as it was named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Low-rank adapters of peft on a frozen base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<Adapters>,
    /// The element type that the frozen base is in, by PyTorch's name, where it is another than the precision's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_dtype: Option<String>,
    /// What bitsandbytes makes of the frozen base's linear layers, one of `QUANTIZATIONS`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantization: Option<String>,
    /// Whether a quantized base was left without peft's `prepare_model_for_kbit_training`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unprepared: bool,
    /// How attention is computed, by transformers' word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<String>,
    /// Whether `torch.compile` made the program, with inductor.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compile: bool,
}

/// Low-rank adapters: what peft's `LoraConfig` was given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapters {
    /// `r`.
    pub rank: u64,
    /// `target_modules`; none: `all-linear`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// `lora_dropout` in the shortest digits; none: 0.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub dropout: String,
}

/// The most that an adapter's rank may be.
const MOST_RANK: u64 = 1 << 16;
/// The most modules that may be named.
const MOST_TARGETS: usize = 1024;
/// The element types that a base is loaded in where the precision has it in another: under autocast, which has float32.
const TYPES: [&str; 2] = ["float16", "bfloat16"];
/// What bitsandbytes can make of linear layers, as `training.quantization` has it.
const QUANTIZATIONS: [&str; 3] = ["int8", "nf4", "nf4-double"];
/// The kinds of attention that can be asked for.
const ATTENTION: &str = "eager";

impl Variant {
    /// Whether it is the model as it was named.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// What `plimsoll trace --also` is given: `lora=16`, `lora=8:q_proj,v_proj+dropout=0.1+base_dtype=bfloat16`,
    /// `lora=16+quantization=nf4`, `attention=eager`, `compile`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self> {
        let mut variant = Self::default();
        let mut dropout = None;
        for part in text.split('+') {
            let wrong = |problem: String| {
                let hint = "write lora=16, lora=8:q_proj,v_proj+dropout=0.1+base_dtype=bfloat16, lora=16+quantization=nf4, \
                            attention=eager, or compile";
                Error::new("--also", format!("{}: {problem}", quoted(text)), hint)
            };
            let (key, value) = match part.split_once('=') {
                Some(pair) => pair,
                None if part.trim() == "compile" => (part, "true"),
                None => return Err(wrong(format!("there is no = in {}", quoted(part)))),
            };
            match key.trim() {
                "lora" => {
                    let (rank, targets) = value.split_once(':').map_or((value, ""), |(rank, rest)| (rank, rest));
                    let rank = rank.trim().parse().ok().filter(|rank| (1..=MOST_RANK).contains(rank));
                    let rank = rank.ok_or_else(|| wrong("the rank is a whole number from 1".to_owned()))?;
                    let names =
                        targets.split(',').map(str::trim).filter(|name| !name.is_empty() && *name != "all-linear");
                    variant.lora =
                        Some(Adapters { rank, targets: names.map(str::to_owned).collect(), dropout: String::new() });
                }
                "dropout" => {
                    let number = value.trim().parse().ok().filter(|p: &f64| (0.0..1.0).contains(p));
                    dropout = Some(number.ok_or_else(|| wrong("dropout is a number from 0 to below 1".to_owned()))?);
                }
                "base_dtype" if TYPES.contains(&value.trim()) => variant.base_dtype = Some(value.trim().to_owned()),
                "base_dtype" => return Err(wrong(format!("base_dtype is one of {}", TYPES.join(", ")))),
                "attention" if value.trim() == ATTENTION => variant.attention = Some(ATTENTION.to_owned()),
                "attention" => {
                    return Err(wrong(format!(
                        "of {} only the model's own attention, which is recorded anyhow, and {ATTENTION} can be recorded without a card",
                        quoted(value)
                    )));
                }
                "quantization" if QUANTIZATIONS.contains(&value.trim()) => {
                    variant.quantization = Some(value.trim().to_owned());
                }
                // As large as NF4, but for what stands in its table of sixteen numbers.
                "quantization" if value.trim() == "fp4" => {
                    return Err(wrong("fp4 takes what nf4 does, to the byte: write quantization=nf4".to_owned()));
                }
                "quantization" => return Err(wrong(format!("quantization is one of {}", QUANTIZATIONS.join(", ")))),
                "prepare_kbit" if value.trim() == "false" => variant.unprepared = true,
                "prepare_kbit" => {
                    return Err(wrong(
                        "a quantized base is prepared unless prepare_kbit=false says otherwise".to_owned(),
                    ));
                }
                "compile" if value.trim() == "true" => variant.compile = true,
                "compile" => {
                    return Err(wrong(
                        "only torch.compile's own mode, with inductor, is recorded: write compile".to_owned(),
                    ));
                }
                other => return Err(wrong(format!("{} cannot be recorded as well", quoted(other)))),
            }
        }
        match (&mut variant.lora, dropout) {
            (Some(adapters), Some(p)) => adapters.set_dropout(p),
            (None, Some(_)) => return Err(Error::new("--also", "dropout is of adapters", "write lora=16+dropout=0.1")),
            _ => {}
        }
        if variant.lora.is_none() && variant.base_dtype.is_some() {
            let hint = "write lora=16+base_dtype=bfloat16";
            return Err(Error::new("--also", "base_dtype is of a base that adapters stand beside", hint));
        }
        if variant.lora.is_none() && variant.quantization.is_some() {
            let problem = "quantized weights are not trained themselves: adapters stand beside them";
            return Err(Error::new("--also", problem, "write lora=16+quantization=nf4"));
        }
        if variant.quantization.is_none() && variant.unprepared {
            let problem = "without quantization there is nothing to prepare";
            return Err(Error::new("--also", problem, "write lora=16+quantization=nf4+prepare_kbit=false"));
        }
        if variant.quantization.is_some() && variant.base_dtype.is_some() {
            let problem =
                "a quantized base is loaded in the dtype its products compute in, which goes with the precision";
            return Err(Error::new("--also", problem, "leave base_dtype out"));
        }
        if variant.quantization.is_some() && variant.compile {
            let problem = "what torch.compile makes of bitsandbytes' layers is not recorded: kernels of its own stand between inductor's";
            return Err(Error::new("--also", problem, "leave one of the two out"));
        }
        Ok(variant)
    }

    /// Whether it is one that [`Variant::parse`] could give.
    pub(super) fn is_sound(&self) -> bool {
        let adapters = self.lora.as_ref().is_none_or(|lora| {
            let dropout = lora.dropout();
            (1..=MOST_RANK).contains(&lora.rank)
                && lora.targets.len() <= MOST_TARGETS
                && (0.0..1.0).contains(&dropout)
                && lora.dropout == text(dropout)
        });
        let base = self.base_dtype.as_ref().is_none_or(|base| TYPES.contains(&base.as_str()) && self.lora.is_some());
        let quantized = match &self.quantization {
            Some(word) => {
                QUANTIZATIONS.contains(&word.as_str())
                    && self.lora.is_some()
                    && self.base_dtype.is_none()
                    && !self.compile
            }
            None => !self.unprepared,
        };
        adapters && base && quantized && self.attention.as_ref().is_none_or(|word| word == ATTENTION)
    }
}

impl Adapters {
    /// `lora_dropout`.
    pub fn dropout(&self) -> f64 {
        if self.dropout.is_empty() { 0.0 } else { self.dropout.parse().unwrap_or(f64::NAN) }
    }

    /// The same with this `lora_dropout`.
    pub fn set_dropout(&mut self, p: f64) {
        self.dropout = text(p);
    }
}

/// A dropout as it is written.
fn text(p: f64) -> String {
    if p == 0.0 { String::new() } else { p.to_string() }
}

impl fmt::Display for Variant {
    /// As [`Variant::parse`] takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(lora) = &self.lora {
            let targets = if lora.targets.is_empty() { String::new() } else { format!(":{}", lora.targets.join(",")) };
            parts.push(format!("lora={}{targets}", lora.rank));
            if !lora.dropout.is_empty() {
                parts.push(format!("dropout={}", lora.dropout));
            }
        }
        parts.extend(self.base_dtype.as_ref().map(|base| format!("base_dtype={base}")));
        parts.extend(self.quantization.as_ref().map(|word| format!("quantization={word}")));
        parts.extend(self.unprepared.then(|| "prepare_kbit=false".to_owned()));
        parts.extend(self.attention.as_ref().map(|word| format!("attention={word}")));
        parts.extend(self.compile.then(|| "compile".to_owned()));
        f.write_str(&parts.join("+"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_read() {
        for said in [
            "lora=16",
            "lora=8:q_proj,v_proj+dropout=0.1+base_dtype=bfloat16",
            "attention=eager",
            "lora=4:attn.to_q+attention=eager",
            "compile",
            "lora=16+compile",
            "lora=16+quantization=nf4",
            "lora=8:q_proj+quantization=nf4-double+attention=eager",
            "lora=8+quantization=int8+prepare_kbit=false",
        ] {
            let variant = Variant::parse(said).unwrap();
            assert_eq!(variant.to_string(), said);
            assert!(variant.is_sound() && !variant.is_plain(), "{said}");
        }
        assert_eq!(Variant::parse("lora=16:all-linear+dropout=0").unwrap().to_string(), "lora=16");
        assert_eq!(Variant::default().to_string(), "");
    }

    #[test]
    fn what_cannot_be_recorded_is_refused_in_words() {
        for (said, word) in [
            ("", "no ="),
            ("lora", "no ="),
            ("lora=0", "rank"),
            ("lora=many", "rank"),
            ("dropout=0.1", "adapters"),
            ("lora=4+dropout=1", "dropout"),
            ("base_dtype=float16", "adapters"),
            ("lora=4+base_dtype=int4", "float16"),
            ("attention=flash_attention_2", "eager"),
            ("quantization=nf4", "lora=16+quantization=nf4"),
            ("lora=4+quantization=fp4", "nf4"),
            ("lora=4+quantization=gptq", "nf4-double"),
            ("lora=4+prepare_kbit=false", "nothing to prepare"),
            ("lora=4+quantization=nf4+prepare_kbit=true", "prepare_kbit=false"),
            ("lora=4+quantization=nf4+base_dtype=float16", "base_dtype"),
            ("lora=4+quantization=nf4+compile", "torch.compile"),
            ("compile=max-autotune", "torch.compile"),
            ("rank=4", "cannot be recorded"),
        ] {
            let refused = Variant::parse(said).unwrap_err().to_string();
            assert!(refused.contains(word), "{said}: {refused}");
        }
    }
}
