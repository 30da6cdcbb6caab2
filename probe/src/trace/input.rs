//! What is said of a model's inputs: their types, their shapes, and the axes these name.

use std::collections::BTreeMap;

use plimsoll_core::Error;
use plimsoll_core::ledger::hull::Axis;
use serde_json::{Value, json};

/// Element types an input may have.
const TYPES: [&str; 9] = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "uint8", "bool"];
/// Usual values where nothing is said.
const SIDE: u64 = 256;
const LENGTH: u64 = 64;
/// Multiples that are tried where a model does not take every size, or does something else at some.
const STEPS: [u64; 3] = [1, 8, 32];

/// The inputs as they were given.
#[derive(Debug)]
pub struct Given {
    /// As the recorder takes them.
    pub inputs: Value,
    /// Name and type, for people.
    pub described: Vec<(String, String)>,
    names: Vec<String>,
    usual: BTreeMap<String, (u64, Option<u64>)>,
}

fn wrong(text: &str, problem: &str) -> Error {
    Error::new("--input", format!("{text:?}: {problem}"), "write name=type[shape]: x=float32[B,3,S,S]")
}

impl Given {
    /// Reads what `--input` and `--axis` were given.
    pub fn read(inputs: &[String], axes: &[String]) -> Result<Self, Error> {
        let (mut table, mut described) = (serde_json::Map::new(), Vec::new());
        let (mut names, mut usual) = (Vec::<String>::new(), BTreeMap::new());
        if inputs.is_empty() {
            return Err(Error::new("--input", "no input is given", "write --input 'x=float32[B,3,S,S]'"));
        }
        for text in inputs {
            let (name, rest) = text.split_once('=').ok_or_else(|| wrong(text, "there is no ="))?;
            let (dtype, shape) = rest.split_once('[').ok_or_else(|| wrong(text, "there is no shape"))?;
            let shape = shape.strip_suffix(']').ok_or_else(|| wrong(text, "the shape does not end"))?;
            if !TYPES.contains(&dtype) {
                return Err(wrong(text, &format!("{dtype:?} is none of {}", TYPES.join(", "))));
            }
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return Err(wrong(text, "the name is no Python name"));
            }
            let lengths: Vec<&str> = shape.split(',').map(str::trim).filter(|length| !length.is_empty()).collect();
            for length in &lengths {
                let allowed = |c: char| c.is_ascii_alphanumeric() || " _+-*/()".contains(c);
                if !length.chars().all(allowed) {
                    return Err(wrong(text, "a length is a number, an axis, or + - * // of those"));
                }
                for axis in identifiers(length) {
                    if !names.contains(&axis) {
                        // Two sides alike are an image's.
                        let sides = lengths.iter().filter(|other| **other == axis).count() > 1;
                        usual.insert(axis.clone(), (if sides { SIDE } else { LENGTH }, None));
                        names.push(axis);
                    }
                }
            }
            table.insert(name.to_owned(), json!({ "dtype": dtype, "shape": lengths }));
            described.push((name.to_owned(), rest.to_owned()));
        }
        // The batch stands first, however the inputs are ordered.
        if let Some(at) = names.iter().position(|name| name == "B") {
            let batch = names.remove(at);
            names.insert(0, batch);
        }
        if names.is_empty() {
            return Err(Error::new("--input", "no length is an axis", "write B where the micro-batch stands"));
        }
        for text in axes {
            let hint = "write S=512, or S=512/32 where only multiples of 32 are asked for";
            let bad = |problem: &str| Error::new("--axis", format!("{text:?}: {problem}"), hint);
            let (name, value) = text.split_once('=').ok_or_else(|| bad("there is no ="))?;
            let (value, step) = match value.split_once('/') {
                Some((value, step)) => (value, Some(step.parse().map_err(|_| bad("the step is no whole number"))?)),
                None => (value, None),
            };
            let value: u64 = value.parse().map_err(|_| bad("it is no whole number"))?;
            if value == 0 || step == Some(0) || step.is_some_and(|step| !value.is_multiple_of(step)) {
                return Err(bad("it must be at least 1, and a multiple of its step"));
            }
            let known = names.join(", ");
            let place = usual.get_mut(name).ok_or_else(|| bad(&format!("the inputs have the axes {known}")))?;
            *place = (value, step);
        }
        Ok(Self { inputs: Value::Object(table), described, names, usual })
    }

    /// The steps to try for every axis but the batch, the finest first.
    pub fn attempts(&self) -> Vec<Vec<u64>> {
        let most = if self.may_step() { STEPS.len() } else { 1 };
        let of = |name: &String, at: usize| self.usual.get(name).and_then(|(_, step)| *step).unwrap_or(STEPS[at]);
        (0..most).map(|at| self.names.iter().skip(1).map(|name| of(name, at)).collect()).collect()
    }

    /// Whether an axis may be tried with coarser steps.
    pub fn may_step(&self) -> bool {
        self.names.iter().skip(1).any(|name| self.usual.get(name).is_none_or(|(_, step)| step.is_none()))
    }

    /// The axes with these steps.
    pub fn axes(&self, steps: &[u64]) -> Vec<Axis> {
        let axis = |(index, name): (usize, &String)| {
            let step = index.checked_sub(1).and_then(|at| steps.get(at)).copied().unwrap_or(1);
            let usual = self.usual.get(name).map_or(LENGTH, |(usual, _)| *usual);
            let usual = if index == 0 { 2 } else { usual.next_multiple_of(step) };
            Axis { name: name.clone(), usual, least: 1, step }
        };
        let mut axes: Vec<Axis> = self.names.iter().enumerate().map(axis).collect();
        for axis in axes.iter_mut().skip(1) {
            axis.least = super::points::least(axis);
        }
        axes
    }

    /// A point in words.
    pub fn at(&self, point: &[u64]) -> String {
        self.names.iter().zip(point).map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    /// A point as the recorder takes it.
    pub fn sizes(&self, point: &[u64]) -> Value {
        let pairs = self.names.iter().zip(point).map(|(name, value)| (name.clone(), Value::from(*value)));
        Value::Object(pairs.collect())
    }
}

/// The names in an expression.
fn identifiers(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic())).map(str::to_owned).collect()
}

/// What `--answer` was given.
pub fn answers(given: &[String]) -> Result<Value, Error> {
    let mut table = serde_json::Map::new();
    for text in given {
        let hint = "write the function that asks and what it is told: Router.forward=false";
        let (who, told) = text.split_once('=').ok_or_else(|| Error::new("--answer", format!("{text:?}"), hint))?;
        let told = serde_json::from_str(told).unwrap_or_else(|_| Value::from(told));
        // Of several masks the first selects all.
        if !(told.is_boolean() || told.is_number() || told == "first") {
            return Err(Error::new("--answer", format!("{text:?} is no number and not true, false or first"), hint));
        }
        table.insert(who.to_owned(), told);
    }
    Ok(Value::Object(table))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(inputs: &[&str], axes: &[&str]) -> Result<Given, Error> {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        Given::read(&own(inputs), &own(axes))
    }

    #[test]
    fn inputs_name_the_axes_and_the_batch_is_the_first() {
        let given = read(&["edge=int64[2,B*S]", "x=float32[S,128]"], &["S=3000"]).unwrap();
        assert_eq!(given.names, ["B", "S"]);
        assert_eq!(given.inputs["edge"]["shape"], json!(["2", "B*S"]));
        assert_eq!(given.axes(&[1])[1].usual, 3000);
        assert_eq!(given.attempts(), [[1], [8], [32]]);
        assert_eq!(read(&["x=float32[B,3,S,S]"], &["S=224/32"]).unwrap().attempts(), [[32]]);
    }

    #[test]
    fn an_answer_is_a_number_a_truth_value_or_first() {
        let read = |given: &str| answers(&[given.to_owned()]);
        for (given, told) in [("A.f=0.25", json!(0.25)), ("A.f=false", json!(false)), ("A.f=first", json!("first"))] {
            assert_eq!(read(given).unwrap(), json!({ "A.f": told }));
        }
        assert!(["A.f", "A.f=last", "A.f="].into_iter().all(|bad| read(bad).is_err()));
    }

    #[test]
    fn what_is_no_input_is_refused_in_words() {
        for bad in ["x", "x=float32", "x=float32[B", "x=complex[B]", "=float32[B]", "x=float32[B;1]", "x=float32[3]"] {
            assert!(read(&[bad], &[]).is_err(), "{bad}");
        }
        for bad in ["S", "S=x", "T=3", "S=0", "S=33/32", "S=3/0"] {
            assert!(read(&["x=float32[B,S]"], &[bad]).is_err(), "{bad}");
        }
    }
}
