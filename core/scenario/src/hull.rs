//! `model.hull`: a model that somebody recorded, and the sizes it is asked at.

mod spread;

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock, OnceLock};

use base64::Engine as _;
use plimsoll_catalog::{self as catalog, Recorded};
use plimsoll_ground::{Error, Result, nearest, quoted};
use plimsoll_ledger::hull::{Adapters, Hull, MOST_BYTES, Variant};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::given::{Given, count, text as text_of};
use crate::link::{BASE64, shell};
use crate::{
    Attention, AttentionMask, BaseDtype, Checkpointing, Lora, LoraTargets, LossImpl, Mode, ModelSource, Optimizer,
    Precision, QuantStorage, Quantization, Scenario, Training, at,
};

/// What stands before a file's content in `model.hull`, in base64url.
pub const CONTENT: &str = "data:";
/// What stands before the hash of a file's content.
const HASH: &str = "sha256:";
/// The longest hull that a link carries, in base64url: what is behind `#` may be 64 KiB, and is not the hull's alone.
const CARRIED: usize = 48 << 10;
/// The most an axis may be.
const LONGEST: u64 = 1 << 40;

/// A recorded model. Two are the same where their files are, byte for byte.
#[derive(Clone, Debug)]
pub struct HullModel {
    hash: String,
    file: Option<Arc<Hull>>,
    /// The file's bytes, in base64url.
    content: Arc<str>,
    axes: Map<String, Value>,
}

impl PartialEq for HullModel {
    fn eq(&self, other: &Self) -> bool {
        (&self.hash, &self.axes) == (&other.hash, &other.axes)
    }
}

impl HullModel {
    /// The model of a file's bytes, every axis but the batch at its usual value.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn of(bytes: &[u8]) -> Result<Self> {
        let hull = Hull::from_bytes(bytes)?;
        let axes = usual(&hull);
        Ok(Self { hash: digest(bytes), file: Some(Arc::new(hull)), content: BASE64.encode(bytes).into(), axes })
    }

    /// A recording of the catalog, every axis but the batch at its usual value. Where no file of the catalog is at hand, as in
    /// the planner, its hash alone is known.
    pub fn shipped(recorded: &Recorded) -> Self {
        Self::named(recorded.hash)
    }

    /// What has this hash: a file that comes along, or else nothing but the hash.
    fn named(hash: &str) -> Self {
        static READ: LazyLock<Vec<OnceLock<Option<HullModel>>>> =
            LazyLock::new(|| (0..catalog::FILES).map(|_| OnceLock::new()).collect());
        let place = catalog::place_of(hash);
        let known = place.and_then(|place| READ.get(place).zip(catalog::file(place)));
        // Reading one plays its witnesses, so that is done once; a test reads all of them.
        let read = known.and_then(|(once, bytes)| once.get_or_init(|| Self::of(bytes).ok()).clone());
        read.unwrap_or_else(|| Self { hash: hash.to_owned(), file: None, content: "".into(), axes: Map::new() })
    }

    /// The row of the catalog, where it is one of its recordings.
    pub fn recorded(&self) -> Option<&'static Recorded> {
        catalog::recorded_as(&self.hash)
    }

    /// What people call it: its row's name, or else what was traced.
    pub fn name(&self) -> Option<&str> {
        match self.recorded() {
            Some(row) => Some(row.name),
            None => self.file.as_ref().map(|file| file.model.as_str()),
        }
    }

    /// The file in base64url, where it is short enough for a link. One of the catalog's is wherever a link is opened.
    pub fn carried(&self) -> Option<&str> {
        let content = Some(&*self.content).filter(|content| !content.is_empty());
        let content = content.filter(|_| catalog::place_of(&self.hash).is_none());
        content.filter(|content| content.len() <= CARRIED)
    }

    /// The text that stands for the whole file in `model.hull`; `None` where only its hash is known.
    pub fn whole(&self) -> Option<String> {
        (!self.content.is_empty()).then(|| format!("{CONTENT}{}", self.content))
    }

    /// The same hull with this size of an axis.
    pub fn with_axis(&self, name: &str, value: u64) -> Self {
        let mut next = self.clone();
        next.axes.insert(name.to_owned(), value.into());
        next
    }

    /// The file's bytes.
    ///
    /// # Errors
    /// Only its hash is known.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        self.file()?;
        BASE64.decode(&*self.content).map_err(|_| Error::new(at::model::hull, "it is not base64url", "open it again"))
    }

    /// The text that stands for a file's bytes in `model.hull`.
    pub fn content(bytes: &[u8]) -> String {
        format!("{CONTENT}{}", BASE64.encode(bytes))
    }

    /// This precision, if it was recorded, or else the first that was.
    pub(crate) fn recorded_precision(&self, wanted: Precision) -> Precision {
        let tapes =
            self.file.as_ref().map_or(&[][..], |file| &file.tapes).iter().filter(|tape| tape.variant.is_plain());
        let mut known = tapes.filter_map(|tape| Precision::ALL.iter().find(|p| p.as_str() == tape.precision));
        let first = known.clone().next().copied().unwrap_or(wanted);
        if known.any(|precision| *precision == wanted) { wanted } else { first }
    }

    /// The hash of the file, `sha256:...`.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The recording.
    ///
    /// # Errors
    /// Only its hash is known.
    pub fn file(&self) -> Result<&Arc<Hull>> {
        self.file.as_ref().ok_or_else(|| {
            let problem = format!("the file with the hash {} is not there", self.hash);
            Error::new(at::model::hull, problem, "name the file: plimsoll estimate --hull FILE")
        })
    }

    /// The axes but the batch, by name.
    pub fn axes(&self) -> &Map<String, Value> {
        &self.axes
    }

    /// The values of all axes, in the file's order.
    ///
    /// # Errors
    /// A value the recording does not hold for.
    pub fn values(&self, batch: u64) -> Result<Vec<u64>> {
        let hull = self.file()?;
        let of = |(index, axis): (usize, &plimsoll_ledger::hull::Axis)| {
            let value = self.axes.get(&axis.name).and_then(Value::as_u64).filter(|_| index > 0);
            let value = if index == 0 { batch } else { value.unwrap_or(axis.usual) };
            let key = if index == 0 { at::input::batch.to_owned() } else { format!("model.{}", axis.name) };
            if value < axis.least {
                let problem = format!("{value} is below {}, the least this hull was recorded at", axis.least);
                return Err(Error::new(
                    key,
                    problem,
                    format!("use {} or more, or record it at smaller sizes", axis.least),
                ));
            }
            if value % axis.step != 0 {
                let problem = format!("{value} is no multiple of {}, and only those were recorded", axis.step);
                let (below, above) = (value / axis.step * axis.step, value.next_multiple_of(axis.step));
                return Err(Error::new(key, problem, format!("use {below} or {above}, or record it with --axis")));
            }
            Ok(value)
        };
        hull.axes.iter().enumerate().map(of).collect()
    }

    /// The same for whoever looks for the largest batch, which begins below the least that was recorded: that a scenario is
    /// not asked there, [`Scenario::check`] has seen to.
    ///
    /// # Errors
    /// A value of another axis the recording does not hold for.
    pub fn values_from_one(&self, batch: u64) -> Result<Vec<u64>> {
        let least = self.file()?.axes.first().map_or(1, |axis| axis.least);
        let mut values = self.values(batch.max(least))?;
        if let Some(first) = values.first_mut() {
            *first = batch;
        }
        Ok(values)
    }

    /// `hull` and its axes, as they are written.
    pub(crate) fn table(&self) -> Map<String, Value> {
        let first = [("hull".to_owned(), Value::from(self.hash.as_str()))];
        first.into_iter().chain(self.axes.clone()).collect()
    }
}

/// Reads `hull` and the axes beside it.
pub(crate) fn read(given: &Given<'_>) -> Result<HullModel> {
    let place = given.at("hull");
    let said = given.get("hull").map_or(Ok(""), |value| text_of(value, &place, "my.hull"))?;
    let model = if let Some(content) = said.strip_prefix(CONTENT) {
        if content.len() > MOST_BYTES * 2 {
            return Err(Error::new(place, "it is longer than any hull", "record a smaller model"));
        }
        let refuse = |_| Error::new(place.as_str(), "it is not base64url", "name the file itself");
        HullModel::of(&BASE64.decode(content).map_err(refuse)?)?
    } else if is_hash(said) {
        HullModel::named(said)
    } else {
        let problem = format!("{} is no hull that was opened", quoted(said));
        return Err(Error::new(place, problem, "open the file with plimsoll estimate --hull FILE"));
    };
    with_axes(model, given)
}

/// A hull with the axes that are given beside its name.
pub(crate) fn with_axes(mut model: HullModel, given: &Given<'_>) -> Result<HullModel> {
    let known: Option<Vec<String>> = model.file.is_some().then(|| model.axes.keys().cloned().collect());
    for name in given.names().filter(|name| !["catalog", "hull", "task"].contains(name)) {
        let Some(value) = given.get(name) else { continue };
        // Without the file they are as they were written: nobody can tell.
        if let Some(known) = &known
            && !known.iter().any(|axis| axis == name)
        {
            let batch = model.file.as_ref().and_then(|hull| hull.axes.first()).is_some_and(|axis| axis.name == name);
            let names: Vec<&str> = known.iter().map(String::as_str).collect();
            let hint = match nearest(name, &names) {
                _ if batch => "it is the micro-batch: set input.batch".to_owned(),
                Some(near) => format!("did you mean {near:?}?"),
                None if names.is_empty() => "this hull has no axis but the batch".to_owned(),
                None => format!("this hull's axes are {}", names.join(", ")),
            };
            return Err(Error::new(given.at(name), "unknown key", hint));
        }
        model.axes.insert(name.to_owned(), count(value, &given.at(name), LONGEST)?.into());
    }
    Ok(model)
}

impl Scenario {
    /// The same with the file of its hull, where it names this one by its hash alone.
    ///
    /// # Errors
    /// It cannot be asked of that file.
    pub fn with_hull(mut self, known: &HullModel) -> Result<Self> {
        if let ModelSource::Hull(hull) = &mut self.model.source
            && hull.file.is_none()
            && hull.hash == known.hash
        {
            let mut named = std::mem::take(&mut hull.axes);
            named.retain(|name, _| known.axes.contains_key(name));
            let mut axes = known.file.as_ref().map(|file| usual(file)).unwrap_or_default();
            axes.extend(named);
            *hull = HullModel { axes, ..known.clone() };
            self.check()?;
        }
        Ok(self)
    }
}

/// Every axis but the batch at its usual value.
fn usual(hull: &Hull) -> Map<String, Value> {
    hull.axes.iter().skip(1).map(|axis| (axis.name.clone(), axis.usual.into())).collect()
}

/// `sha256:...` of a file's bytes.
fn digest(bytes: &[u8]) -> String {
    let mut hash = HASH.to_owned();
    for byte in Sha256::digest(bytes) {
        // Writing to a String cannot fail.
        let _ = write!(hash, "{byte:02x}");
    }
    hash
}

/// The hash of a file in base64url.
pub(crate) fn hash_of(content: &str) -> Result<String> {
    let bytes = BASE64.decode(content);
    bytes.map(|bytes| digest(&bytes)).map_err(|_| Error::new("hull", "the hull behind # is damaged", "copy it again"))
}

/// `sha256:` and 64 digits.
pub(crate) fn is_hash(text: &str) -> bool {
    let digits = text.strip_prefix(HASH).unwrap_or_default();
    digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Refuses what would make another program of it, and what was not recorded, each with what records it.
///
/// # Errors
/// The first lever that does.
pub(crate) fn check(scenario: &Scenario, model: &HullModel) -> Result<()> {
    let training = &scenario.training;
    let another = |key: &str, what: &str, hint: &str| {
        Err(Error::new(key, format!("{what} makes another program than the one that was recorded"), hint))
    };
    if training.mode == Mode::Inference {
        let hint = "use training.mode = \"train\": plimsoll trace records training steps";
        return Err(Error::new(at::training::mode, "a hull holds a training step, and no inference", hint));
    }
    if let Some(lora) = &training.lora {
        let hint = "leave it out, or add the adapters in MODULE:CALLABLE and record that with plimsoll trace";
        if lora.dora {
            return another(at::lora::dora, "DoRA", hint);
        }
        if !lora.autocast_adapter_dtype {
            return another(at::lora::autocast_adapter_dtype, "an adapter in the base's dtype", hint);
        }
        if !lora.modules_to_save.is_empty() {
            return another(at::lora::modules_to_save, "a module that is trained whole", hint);
        }
    }
    if training.quant_storage != QuantStorage::Uint8 {
        let hint = "leave it out: bitsandbytes packs what is recorded in uint8";
        return another(at::training::quant_storage, "a base that is packed in other numbers", hint);
    }
    if training.loss_impl != LossImpl::Full {
        return another(
            at::training::loss_impl,
            "another loss",
            "write it into --loss and record it with plimsoll trace",
        );
    }
    if training.label_smoothing > 0.0 {
        let hint = "write it into --loss and record it with plimsoll trace";
        return another(at::training::label_smoothing, "label smoothing", hint);
    }
    if training.keep_outputs {
        let hint = "leave it out: which tensors the loop would hold is not recorded yet";
        return another(at::training::keep_outputs, "holding the outputs", hint);
    }
    if training.checkpointing == Checkpointing::Selective {
        return Err(Error::new(
            at::training::checkpointing,
            "which operators of a recording keep their results is not estimated",
            "use full, or run the script with plimsoll rehearse",
        ));
    }
    if training.compile && training.checkpointing != Checkpointing::None {
        let hint = "leave one of the two out, or run the script with plimsoll rehearse";
        let problem = "what torch.compile makes of a checkpointed model is not recorded: it decides itself what is computed again";
        return Err(Error::new(at::training::checkpointing, problem, hint));
    }
    spread::check(scenario, model)?;
    if training.optimizer == Optimizer::Muon {
        let hint = "use another optimizer: which matrices are embeddings is not recorded yet";
        return Err(Error::new(at::training::optimizer, "muon is not estimated for hulls yet", hint));
    }
    if scenario.input.attention_mask != AttentionMask::None {
        let hint = "make the mask an --input and record it with plimsoll trace";
        return another(at::input::attention_mask, "a mask", hint);
    }
    if model.file.is_some() {
        model.values(scenario.input.batch)?;
        recorded(model, training)?;
    }
    Ok(())
}

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
fn recorded(model: &HullModel, training: &Training) -> Result<()> {
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
