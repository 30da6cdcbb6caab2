//! The part of pickle's language that makes plain values. Opcodes as in CPython's `Lib/pickletools.py`.

use plimsoll_ground::{Error, Result};

/// Most values of a pickle: about half a gigabyte of ours. Those of the tests have six to nine for every event of their history.
const MOST_VALUES: usize = 16 << 20;

/// Most keys of a dictionary that are looked at, the last ones: asking costs as much, however often one is referred to.
const MOST_KEYS: usize = 64;

/// Longest text that is given out, in bytes, for the same reason.
const MOST_TEXT: usize = 1024;

const HINT: &str = "give a file that torch.cuda.memory._dump_snapshot wrote";

/// A value's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(u32);

/// A value that holds no code.
#[derive(Clone, Debug, PartialEq)]
enum Value<'a> {
    /// `None`, fractions, sets, bytes, numbers of more than 64 bits: nothing that a snapshot needs.
    Other,
    /// A whole number; truth values are 0 and 1.
    Int(i64),
    /// UTF-8, or nearly.
    Text(&'a [u8]),
    /// A list or tuple.
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
}

/// What a pickle makes: values that refer to one another, in whatever way. Those who walk them go to a depth of their own.
#[derive(Debug)]
pub struct Pickle<'a> {
    values: Vec<Value<'a>>,
    root: Id,
}

impl<'a> Pickle<'a> {
    /// Runs the instructions.
    ///
    /// # Errors
    /// Under the key `snapshot`: what is no pickle, is cut off, or names code to be run.
    pub fn read(input: &'a [u8]) -> Result<Self> {
        let mut machine = Machine { input, ..Machine::default() };
        match machine.run() {
            Ok(root) => Ok(Self { values: machine.values, root }),
            Err(problem) => {
                let at = machine.at.saturating_sub(1);
                Err(Error::new("snapshot", format!("byte {at}: {problem}"), HINT))
            }
        }
    }

    /// What all others hang on.
    pub const fn root(&self) -> Id {
        self.root
    }

    fn value(&self, id: Id) -> &Value<'a> {
        // Ids are only made by the machine, of values that it has.
        self.values.get(id.0 as usize).unwrap_or(&Value::Other)
    }

    /// The items of a list or tuple; none of anything else.
    pub fn items(&self, id: Id) -> &[Id] {
        if let Value::List(items) = self.value(id) { items } else { &[] }
    }

    /// Whether it is a list or tuple.
    pub fn is_list(&self, id: Id) -> bool {
        matches!(self.value(id), Value::List(_))
    }

    /// The value under a key of a dictionary.
    pub fn get(&self, id: Id, key: &str) -> Option<Id> {
        let Value::Dict(entries) = self.value(id) else { return None };
        // Where a key stands twice the later one holds. None of a snapshot's dictionaries has thirty.
        let found =
            entries.iter().rev().take(MOST_KEYS).find(|(name, _)| self.value(*name) == &Value::Text(key.as_bytes()));
        found.map(|(_, value)| *value)
    }

    /// A whole number.
    pub fn int(&self, id: Id) -> Option<i64> {
        if let Value::Int(number) = self.value(id) { Some(*number) } else { None }
    }

    /// A text.
    pub fn text(&self, id: Id) -> Option<String> {
        match self.value(id) {
            Value::Text(bytes) => Some(String::from_utf8_lossy(&bytes[..bytes.len().min(MOST_TEXT)]).into_owned()),
            _ => None,
        }
    }
}

/// Pickle's machine.
#[derive(Debug, Default)]
struct Machine<'a> {
    input: &'a [u8],
    at: usize,
    values: Vec<Value<'a>>,
    stack: Vec<Id>,
    /// How high the stack was at each mark.
    marks: Vec<usize>,
    memo: Vec<Option<Id>>,
}

type Step<T> = std::result::Result<T, String>;

const CUT_OFF: &str = "it ends in the middle";
const EMPTY: &str = "it takes from an empty stack";

impl<'a> Machine<'a> {
    fn run(&mut self) -> Step<Id> {
        if self.byte()? != super::FIRST || !(2..=5).contains(&self.byte()?) {
            return Err("it is no pickle of protocol 2 to 5".to_owned());
        }
        loop {
            let opcode = self.byte()?;
            if opcode == b'.' {
                return self.pop();
            }
            self.step(opcode)?;
        }
    }

    fn step(&mut self, opcode: u8) -> Step<()> {
        match opcode {
            0x95 => drop(self.bytes(8)?),
            b'(' => self.marks.push(self.stack.len()),
            b'N' => self.push(Value::Other)?,
            0x88 => self.push(Value::Int(1))?,
            0x89 => self.push(Value::Int(0))?,
            b'K' => self.whole(1)?,
            b'M' => self.whole(2)?,
            b'J' => {
                let number = self.length(4)? as u32;
                self.push(Value::Int(i64::from(number.cast_signed())))?;
            }
            0x8a => {
                let length = self.length(1)?;
                self.long(length)?;
            }
            0x8b => {
                let length = self.length(4)?;
                self.long(length)?;
            }
            b'G' => {
                self.bytes(8)?;
                self.push(Value::Other)?;
            }
            0x8c | b'U' => self.text(1)?,
            b'X' | b'T' => self.text(4)?,
            0x8d => self.text(8)?,
            b'C' => self.blob(1)?,
            b'B' => self.blob(4)?,
            0x8e | 0x96 => self.blob(8)?,
            b'}' => self.push(Value::Dict(Vec::new()))?,
            b']' | b')' => self.push(Value::List(Vec::new()))?,
            0x8f => self.push(Value::Other)?,
            0x90 => drop(self.marked()?),
            0x91 => {
                self.marked()?;
                self.push(Value::Other)?;
            }
            b't' | b'l' => {
                let items = self.marked()?;
                self.push(Value::List(items))?;
            }
            0x85..=0x87 => {
                let items = self.last(usize::from(opcode - 0x84))?;
                self.push(Value::List(items))?;
            }
            b'd' => {
                let items = self.marked()?;
                let entries = pairs(&items)?;
                self.push(Value::Dict(entries))?;
            }
            b'a' => {
                let item = self.pop()?;
                self.append(&[item])?;
            }
            b'e' => {
                let items = self.marked()?;
                self.append(&items)?;
            }
            b's' => {
                let entry = self.last(2)?;
                self.set(&entry)?;
            }
            b'u' => {
                let entries = self.marked()?;
                self.set(&entries)?;
            }
            0x94 => {
                let top = self.top()?;
                self.memo.push(Some(top));
            }
            b'q' => {
                let place = self.length(1)?;
                self.remember(place)?;
            }
            b'r' => {
                let place = self.length(4)?;
                self.remember(place)?;
            }
            b'h' => {
                let place = self.length(1)?;
                self.recall(place)?;
            }
            b'j' => {
                let place = self.length(4)?;
                self.recall(place)?;
            }
            b'0' => drop(self.pop()?),
            b'1' => drop(self.marked()?),
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
            }
            b'c' | b'i' | b'o' | b'R' | b'b' | b'P' | b'Q' | 0x81..=0x84 | 0x92 | 0x93 => {
                return Err("it names code to be run, as no memory snapshot does; nothing was run".to_owned());
            }
            other => return Err(format!("it has an instruction {other:#04x} that no memory snapshot has")),
        }
        Ok(())
    }

    fn byte(&mut self) -> Step<u8> {
        let byte = self.input.get(self.at).copied().ok_or(CUT_OFF)?;
        self.at += 1;
        Ok(byte)
    }

    fn bytes(&mut self, length: usize) -> Step<&'a [u8]> {
        let end = self.at.checked_add(length).ok_or(CUT_OFF)?;
        let bytes = self.input.get(self.at..end).ok_or(CUT_OFF)?;
        self.at = end;
        Ok(bytes)
    }

    /// A length or a place of `width` bytes, lowest first.
    fn length(&mut self, width: usize) -> Step<usize> {
        let number = self.bytes(width)?.iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
        usize::try_from(number).map_err(|_| CUT_OFF.to_owned())
    }

    fn push(&mut self, value: Value<'a>) -> Step<()> {
        if self.values.len() >= MOST_VALUES {
            return Err(format!("it has more than {MOST_VALUES} values: record a shorter history (max_entries)"));
        }
        self.stack.push(Id(self.values.len() as u32));
        self.values.push(value);
        Ok(())
    }

    fn whole(&mut self, width: usize) -> Step<()> {
        let number = self.length(width)?;
        self.push(Value::Int(number as i64))
    }

    fn long(&mut self, length: usize) -> Step<()> {
        let bytes = self.bytes(length)?;
        let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let filler = if negative { 0xff } else { 0 };
        let mut wide = [filler; 8];
        let value = if bytes.len() <= 8 {
            wide[..bytes.len()].copy_from_slice(bytes);
            Value::Int(i64::from_le_bytes(wide))
        } else {
            Value::Other
        };
        self.push(value)
    }

    fn text(&mut self, width: usize) -> Step<()> {
        let length = self.length(width)?;
        let bytes = self.bytes(length)?;
        self.push(Value::Text(bytes))
    }

    fn blob(&mut self, width: usize) -> Step<()> {
        let length = self.length(width)?;
        self.bytes(length)?;
        self.push(Value::Other)
    }

    /// How far down the stack may be taken from: to the last mark.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Step<Id> {
        if self.stack.len() <= self.floor() {
            return Err(EMPTY.to_owned());
        }
        self.stack.pop().ok_or_else(|| EMPTY.to_owned())
    }

    fn top(&self) -> Step<Id> {
        self.stack.last().copied().ok_or_else(|| EMPTY.to_owned())
    }

    fn last(&mut self, count: usize) -> Step<Vec<Id>> {
        let from = self.stack.len().checked_sub(count).filter(|from| *from >= self.floor()).ok_or(EMPTY)?;
        Ok(self.stack.split_off(from))
    }

    fn marked(&mut self) -> Step<Vec<Id>> {
        let from = self.marks.pop().ok_or("it closes what was not opened")?;
        Ok(self.stack.split_off(from))
    }

    fn append(&mut self, more: &[Id]) -> Step<()> {
        let list = self.top()?;
        match self.values.get_mut(list.0 as usize) {
            Some(Value::List(items)) => items.extend_from_slice(more),
            _ => return Err("it appends to what is no list".to_owned()),
        }
        Ok(())
    }

    fn set(&mut self, more: &[Id]) -> Step<()> {
        let dict = self.top()?;
        let more = pairs(more)?;
        match self.values.get_mut(dict.0 as usize) {
            Some(Value::Dict(entries)) => entries.extend_from_slice(&more),
            _ => return Err("it sets a key of what is no dictionary".to_owned()),
        }
        Ok(())
    }

    fn remember(&mut self, place: usize) -> Step<()> {
        let top = self.top()?;
        // A writer numbers its places in order, and each takes it some bytes.
        if place > self.input.len() {
            return Err("it remembers at a place beyond its end".to_owned());
        }
        if self.memo.len() <= place {
            self.memo.resize(place + 1, None);
        }
        self.memo[place] = Some(top);
        Ok(())
    }

    fn recall(&mut self, place: usize) -> Step<()> {
        let id = self.memo.get(place).copied().flatten().ok_or("it recalls what it does not remember")?;
        self.stack.push(id);
        Ok(())
    }
}

fn pairs(items: &[Id]) -> Step<Vec<(Id, Id)>> {
    let (pairs, rest) = items.as_chunks::<2>();
    if !rest.is_empty() {
        return Err("it has a key without a value".to_owned());
    }
    Ok(pairs.iter().map(|[key, value]| (*key, *value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `pickle.dumps({"a": [1, 2.5, True, None], "b": (-3, 1 << 40)}, 4)` of Python 3.11.
    const PLAIN: &[u8] = b"\x80\x04\x95-\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01G@\x04\x00\x00\x00\x00\x00\x00\x88Ne\x8c\x01b\x94J\xfd\xff\xff\xff\x8a\x06\x00\x00\x00\x00\x00\x01\x86\x94u.";

    fn problem(input: &[u8]) -> String {
        Pickle::read(input).unwrap_err().to_string()
    }

    #[test]
    fn plain_values_are_read() {
        let pickle = Pickle::read(PLAIN).unwrap();
        let list = pickle.get(pickle.root(), "a").unwrap();
        assert_eq!(pickle.items(list).len(), 4);
        assert_eq!(pickle.int(pickle.items(list)[0]), Some(1));
        assert_eq!(pickle.int(pickle.items(list)[2]), Some(1));
        let pair = pickle.items(pickle.get(pickle.root(), "b").unwrap());
        assert_eq!(pair.iter().map(|id| pickle.int(*id).unwrap()).collect::<Vec<_>>(), [-3, 1 << 40]);
    }

    #[test]
    fn code_is_never_run() {
        // pickle.dumps of an object whose __reduce__ is (os.system, ("id",)).
        let hostile = b"\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x02id\x94\x85\x94R\x94.";
        assert!(problem(hostile).contains("names code to be run"), "{}", problem(hostile));
        assert!(problem(b"\x80\x02cposix\nsystem\nU\x02id\x85R.").contains("names code to be run"));
    }

    #[test]
    fn what_is_no_pickle_is_refused() {
        for (input, said) in [
            (&b""[..], "ends in the middle"),
            (b"{\"segments\": []}", "no pickle"),
            (b"\x80\x09.", "no pickle"),
            (b"\x80\x04.", "empty stack"),
            (b"\x80\x04(K\x01e.", "empty stack"),
            (b"\x80\x04e.", "not opened"),
            (b"\x80\x04h\x07.", "does not remember"),
            (b"\x80\x04Nr\xff\xff\xff\x7f.", "beyond its end"),
            (b"\x80\x04}(K\x01u.", "key without a value"),
            (b"\x80\x04K\x01K\x02a.", "no list"),
            (b"\x80\x04X\xff\xff\xff\xffabc", "ends in the middle"),
        ] {
            assert!(problem(input).contains(said), "{}", problem(input));
        }
    }

    /// Every level refers twice to the one before: 2^60 leaves, had they to be copied.
    #[test]
    fn what_refers_is_not_unfolded() {
        let mut input = b"\x80\x04]\x94".to_vec();
        for level in 0..60u8 {
            input.extend([b'h', level, b'h', level, 0x86, 0x94]);
        }
        input.push(b'.');
        assert!(Pickle::read(&input).is_ok());
    }
}
