//! `model.hull`: a model that somebody recorded, and the sizes it is asked at.

mod check;
mod spread;
mod variant;

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock, OnceLock};

use base64::Engine as _;
use plimsoll_catalog::{self as catalog, Recorded};
use plimsoll_ground::{Error, Result, nearest, quoted};
use plimsoll_ledger::hull::{Hull, MOST_BYTES};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

pub(crate) use check::check;
pub use variant::{variant, words};

use crate::given::{Given, count, text as text_of};
use crate::link::BASE64;
use crate::{ModelSource, Precision, Scenario, at};

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

    /// The name of a parameter without dimensions, where it has one.
    pub(crate) fn scalar(&self) -> Option<String> {
        let parameters = self.file.iter().flat_map(|hull| &hull.tapes).flat_map(|tape| &tape.parameters);
        parameters.into_iter().find(|parameter| parameter.sizes.is_empty()).map(|parameter| parameter.name.clone())
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
