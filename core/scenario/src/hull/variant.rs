//! Variants of a recording: with adapters, with other attention, compiled; and in which precision.

use plimsoll_ground::{Error, Result};
use plimsoll_ledger::hull::{Adapters, Hull, Variant};

use super::HullModel;
use crate::link::shell;
use crate::{Attention, BaseDtype, Lora, LoraTargets, Precision, Quantization, Training, at};

/// What of the recorded model a recipe asks for: the model as it was named, or that with adapters, with other attention or
/// compiled.
pub fn variant(training: &Training) -> Variant {
    let lora = training.lora.as_ref().map(|lora| {
        let targets = match &lora.targets {
            LoraTargets::AllLinear => Vec::new(),
            LoraTargets::Names(names) => names.clone(),
        };
        let mut adapters = Adapters { rank: lora.rank, targets, dropout: String::new() };
        adapters.set_dropout(lora.dropout);
        adapters
    });
    let quantized = training.quantization != Quantization::None;
    let base = training.loaded();
    let other = lora.is_some() && !quantized && base != training.precision.dtype(false);
    Variant {
        lora,
        base_dtype: other.then(|| base.as_str().to_owned()),
        quantization: quantized.then(|| training.quantization.as_str().to_owned()),
        unprepared: !training.prepare_kbit,
        attention: (training.attention != Attention::Sdpa).then(|| training.attention.as_str().to_owned()),
        compile: training.compile,
    }
}

/// Refuses a variant or a precision that was not recorded.
pub(super) fn recorded(model: &HullModel, training: &Training) -> Result<()> {
    let hull = model.file()?;
    let (wanted, precision) = (variant(training), training.precision);
    let same = |tape: &plimsoll_ledger::hull::Tape| tape.variant == wanted;
    if hull.tapes.iter().any(|tape| same(tape) && tape.precision == precision.as_str()) {
        return Ok(());
    }
    let script = hull.model.split(' ').next().filter(|script| script.ends_with(".py"));
    if hull.tapes.iter().any(same) {
        let known = hull.precisions_of(&wanted);
        // A script's marked lines are recorded in the precision they have.
        let how = match script {
            Some(script) => format!("change it in {script}, and trace that again"),
            None => format!("record it: {}", recording(hull, &wanted, precision)),
        };
        return Err(Error::new(
            at::training::precision,
            format!("this hull was recorded in {}, not in {precision}{}", known.join(" and "), with(&wanted)),
            format!("use one of those, or {how}"),
        ));
    }
    let known = hull.variants();
    let alike: Vec<&&Variant> = known.iter().filter(|other| other.lora == wanted.lora).collect();
    // Of the same adapters; of any, where these are on none.
    let beside: Vec<&&Variant> = if alike.is_empty() { known.iter().collect() } else { alike.clone() };
    let quantized = |other: &&&Variant| other.quantization == wanted.quantization;
    let packed = beside.iter().any(|other| quantized(other) && other.unprepared == wanted.unprepared);
    let compiled = known.iter().any(|other| other.compile) == wanted.compile;
    let key = match (&wanted.lora, alike.first()) {
        _ if !compiled => at::training::compile,
        (Some(_), _) if !packed && beside.iter().any(|other| quantized(other) && wanted.quantization.is_some()) => {
            at::training::prepare_kbit
        }
        (Some(_), first) if !packed && (first.is_some() || wanted.quantization.is_some()) => at::training::quantization,
        (Some(_), None) => LORA,
        (_, first) if first.is_none_or(|other| other.attention != wanted.attention) => at::training::attention,
        _ => at::training::base_dtype,
    };
    let said: Vec<String> = known.iter().map(|variant| words(variant)).collect();
    let problem = match (said.is_empty(), wanted.is_plain()) {
        (_, true) => format!("this hull was recorded with {} alone", said.join(", and with ")),
        (true, _) => format!("this hull was not recorded with {}", words(&wanted)),
        (false, _) => format!("this hull was recorded with {}, not with {}", said.join(", and with "), words(&wanted)),
    };
    let how = match script {
        Some(script) => format!("write it into {script}, and trace that again"),
        None => format!("record it: {}", recording(hull, &wanted, precision)),
    };
    Err(Error::new(key, problem, how))
}

/// The table of adapters, which a recording has or has not as a whole.
const LORA: &str = "training.lora";

/// A variant in words.
pub fn words(variant: &Variant) -> String {
    let mut parts = Vec::new();
    if let Some(lora) = &variant.lora {
        let targets = match lora.targets.is_empty() {
            true => "every linear layer".to_owned(),
            false => lora.targets.join(", "),
        };
        let dropout = if lora.dropout.is_empty() { String::new() } else { format!(", dropout {}", lora.dropout) };
        let base = variant.base_dtype.as_ref().map_or_else(String::new, |base| format!(" and a base in {base}"));
        let quantized = variant.quantization.as_ref().map_or_else(String::new, |word| {
            let loaded = if variant.unprepared { " as it was loaded" } else { "" };
            format!(" and a base in {word}{loaded}")
        });
        parts.push(format!("LoRA of rank {} on {targets}{dropout}{base}{quantized}", lora.rank));
    }
    parts.extend(variant.attention.as_ref().map(|word| format!("{word} attention")));
    parts.extend(variant.compile.then(|| "torch.compile".to_owned()));
    parts.join(" and ")
}

fn with(variant: &Variant) -> String {
    if variant.is_plain() { String::new() } else { format!(" with {}", words(variant)) }
}

impl HullModel {
    /// The recipe with adapters that this hull was recorded with, on a base of four bits or on another, in a precision that they were
    /// recorded in: those that the recipe has where they were, else the first; `None`: with none.
    pub(crate) fn adapted(&self, training: &Training, four_bit: bool) -> Option<Training> {
        let hull = self.file.as_ref()?;
        let packed = |variant: &Variant| variant.quantization.as_deref().is_some_and(|word| word.starts_with("nf4"));
        let wanted = variant(training).lora;
        // What is closest to what is asked for comes last.
        let rank = |variant: &&Variant| (packed(variant) == four_bit, variant.lora == wanted);
        let adapted = hull.variants().into_iter().filter(|variant| variant.lora.is_some());
        let variant = adapted.rev().max_by_key(rank).filter(|variant| packed(variant) || !four_bit)?;
        let lora = variant.lora.as_ref()?;
        let targets = match lora.targets.is_empty() {
            true => LoraTargets::AllLinear,
            false => LoraTargets::Names(lora.targets.clone()),
        };
        let mut next = training.clone();
        next.lora = Some(Lora { rank: lora.rank, targets, dropout: lora.dropout(), ..crate::ADAPTERS });
        let known = hull.precisions_of(variant);
        if !known.contains(&next.precision.as_str()) {
            next.precision = *Precision::ALL.iter().find(|precision| known.contains(&precision.as_str()))?;
        }
        let word = variant.quantization.as_deref().unwrap_or("none");
        next.quantization = *Quantization::ALL.iter().find(|quantization| quantization.as_str() == word)?;
        next.prepare_kbit = !variant.unprepared;
        let base = variant.base_dtype.as_deref();
        next.compile = variant.compile;
        next.base_dtype = base
            .and_then(|base| BaseDtype::ALL.iter().find(|dtype| dtype.as_str() == base))
            .map_or(BaseDtype::Precision, |dtype| *dtype);
        if let Some(word) = &variant.attention {
            next.attention = *Attention::ALL.iter().find(|attention| attention.as_str() == word)?;
        }
        Some(next)
    }
}

/// The command that records the model of a hull once more, this variant in this precision as well.
fn recording(hull: &Hull, variant: &Variant, precision: Precision) -> String {
    let mut words = vec!["plimsoll trace".to_owned(), shell(&hull.model)];
    words.extend(hull.inputs.iter().map(|(name, kind)| format!("--input {}", shell(&format!("{name}={kind}")))));
    words.extend(hull.axes.iter().skip(1).map(|axis| match axis.step {
        1 => format!("--axis {}={}", axis.name, axis.usual),
        step => format!("--axis {}={}/{step}", axis.name, axis.usual),
    }));
    let mut precisions = vec![precision.as_str()];
    precisions.extend(hull.precisions().into_iter().filter(|known| *known != precision.as_str()));
    words.push(format!("--loss {} --precision {}", shell(&hull.loss), precisions.join(",")));
    let mut others = hull.variants();
    if !variant.is_plain() && !others.contains(&variant) {
        others.push(variant);
    }
    words.extend(others.iter().map(|other| format!("--also {}", shell(&other.to_string()))));
    words.join(" ")
}
