//! Python, as far as configurations use it: calls with literal arguments, and names that were given a literal before. Nothing is
//! run; what is not a literal stays as the text it is.

use plimsoll_ground::Result;
use serde_json::{Map, Number, Value};

use super::tokens::{Token, tokens};
use super::{Group, MOST_DEPTH, MOST_KEYS, Said};

/// What the names that were set are gathered under.
pub const NAMES: &str = "=";

/// The calls of a text, in the order they begin in, and the names it sets.
pub fn read(text: &str) -> Result<Vec<Group>> {
    let tokens = tokens(text);
    let mut reader = Reader { tokens: &tokens, at: 0, groups: Vec::new(), names: Map::new(), left: MOST_KEYS };
    reader.statements();
    let mut groups = reader.groups;
    // Words with a bracket behind them are in prose too: a call that is given a key, or names that are set, make it Python.
    if groups.iter().all(|group| group.said.is_empty()) {
        groups.clear();
    } else {
        let said: Vec<Said> = reader.names.into_iter().map(|(key, value)| Said { key, value }).collect();
        // What a call says itself counts for more.
        groups.insert(0, Group { called: NAMES.to_owned(), said, ..Group::default() });
    }
    Ok(groups)
}

struct Reader<'t> {
    tokens: &'t [Token],
    at: usize,
    groups: Vec<Group>,
    names: Map<String, Value>,
    /// Values that may still be read: nested brackets are gone through again where they are no literal.
    left: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next_is(&self, mark: char) -> bool {
        self.peek() == Some(&Token::Mark(mark))
    }

    fn take(&mut self, mark: char) -> bool {
        let taken = self.next_is(mark);
        self.at += usize::from(taken);
        taken
    }

    fn statements(&mut self) {
        while self.at < self.tokens.len() && self.left > 0 {
            let start = self.at;
            if let Some(Token::Name(name)) = self.peek() {
                let name = name.clone();
                self.at += 1;
                // `a = b = 4`, `a: int = 4`; a comparison is none.
                if self.take(':') {
                    self.path();
                }
                if self.take('=') && !self.next_is('=') {
                    let value = self.expression(0);
                    if !name.contains('.') && self.names.len() < MOST_KEYS {
                        self.names.insert(name, value);
                    }
                    continue;
                }
                self.at = start;
                self.expression(0);
            }
            // Whatever it was: on.
            self.at = self.at.max(start + 1);
        }
    }

    fn path(&mut self) {
        while matches!(self.peek(), Some(Token::Name(_))) {
            self.at += 1;
        }
    }

    /// An expression, up to a comma, a closing bracket or the end of the line.
    fn expression(&mut self, depth: usize) -> Value {
        self.left = self.left.saturating_sub(1);
        let mut value = self.operand(depth);
        while let Some(Token::Mark(mark)) = self.peek() {
            let mark = *mark;
            if !matches!(mark, '+' | '-' | '*' | '/' | '%' | '|') {
                break;
            }
            self.at += 1;
            let twice = self.take(mark);
            let right = self.operand(depth);
            value = computed(mark, twice, &value, &right).unwrap_or(Value::Null);
        }
        match self.peek() {
            Some(Token::Name(word))
                if word == "if" || word == "or" || word == "and" || word == "for" || word == "in" =>
            {
                // `a if b else c`: not decided here.
                self.skip();
                Value::String("an expression".to_owned())
            }
            Some(Token::Mark('<' | '>' | '!' | '=')) => {
                self.skip();
                Value::String("an expression".to_owned())
            }
            _ => value,
        }
    }

    fn operand(&mut self, depth: usize) -> Value {
        if depth > MOST_DEPTH || self.left == 0 {
            self.skip();
            return Value::Null;
        }
        let Some(token) = self.peek().cloned() else { return Value::Null };
        match token {
            Token::Number(number) => {
                self.at += 1;
                number
            }
            Token::Text(mut text) => {
                self.at += 1;
                // Texts that stand side by side are one.
                while let Some(Token::Text(more)) = self.peek() {
                    text.push_str(more);
                    self.at += 1;
                }
                Value::String(text)
            }
            Token::Mark('-') => {
                self.at += 1;
                computed('-', false, &0.into(), &self.operand(depth + 1)).unwrap_or(Value::Null)
            }
            Token::Mark('[') => {
                self.at += 1;
                Value::Array(self.items(']', depth))
            }
            Token::Mark('(') => {
                self.at += 1;
                let mut items = self.items(')', depth);
                if items.len() == 1 { items.remove(0) } else { Value::Array(items) }
            }
            Token::Mark('{') => {
                self.at += 1;
                self.table(depth)
            }
            Token::Name(word) => {
                self.at += 1;
                self.named(word, depth)
            }
            Token::Mark(_) | Token::Line => Value::Null,
        }
    }

    fn named(&mut self, word: String, depth: usize) -> Value {
        match word.as_str() {
            "True" => return Value::Bool(true),
            "False" => return Value::Bool(false),
            "None" => return Value::Null,
            "not" => {
                return match self.operand(depth + 1) {
                    Value::Bool(flag) => Value::Bool(!flag),
                    other => other,
                };
            }
            "with" | "await" | "return" => return self.expression(depth + 1),
            _ => {}
        }
        if !self.next_is('(') {
            // An index says nothing here.
            if self.take('[') {
                self.items(']', depth);
                return Value::String(word);
            }
            return self.names.get(&word).cloned().unwrap_or(Value::String(word));
        }
        self.at += 1;
        let group = self.call(word, depth);
        let value = match group.called.rsplit('.').next().unwrap_or_default() {
            // What cards people train on answer.
            "is_bfloat16_supported" | "is_bf16_supported" => Value::Bool(true),
            "dict" => Value::Object(group.said.iter().map(|said| (said.key.clone(), said.value.clone())).collect()),
            // torch.device("cuda"), Path("x"), str(x): what is in it.
            _ => group.given.first().cloned().unwrap_or(Value::Null),
        };
        self.groups.push(group);
        // `.to("cuda")` on what was returned.
        while let Some(Token::Name(more)) = self.peek() {
            if !more.starts_with('.') {
                break;
            }
            let more = more.trim_start_matches('.').to_owned();
            self.at += 1;
            if self.take('(') {
                let group = self.call(more, depth);
                self.groups.push(group);
            }
        }
        value
    }

    /// What stands within the brackets of a call; keys of tables within are joined.
    fn call(&mut self, called: String, depth: usize) -> Group {
        let mut group = Group { called, ..Group::default() };
        loop {
            let start = self.at;
            match self.peek() {
                None => break,
                Some(Token::Mark(')')) => {
                    self.at += 1;
                    break;
                }
                Some(Token::Mark(',') | Token::Line) => self.at += 1,
                Some(Token::Name(name)) if self.tokens.get(self.at + 1) == Some(&Token::Mark('=')) => {
                    let key = name.clone();
                    self.at += 2;
                    match self.expression(depth + 1) {
                        Value::Object(map) if !map.is_empty() => {
                            // Too deep a table would have been refused before.
                            let _ = super::flatten(&key, map, 0, &mut group.said);
                        }
                        value => group.said.push(Said { key, value }),
                    }
                }
                _ => {
                    let value = self.expression(depth + 1);
                    group.given.push(value);
                }
            }
            if self.at == start || self.left == 0 {
                self.at = start + 1;
            }
        }
        group
    }

    fn items(&mut self, end: char, depth: usize) -> Vec<Value> {
        let mut items = Vec::new();
        loop {
            let start = self.at;
            match self.peek() {
                None => break,
                Some(Token::Mark(mark)) if *mark == end => {
                    self.at += 1;
                    break;
                }
                Some(Token::Mark(',') | Token::Line) => self.at += 1,
                _ => items.push(self.expression(depth + 1)),
            }
            if self.at == start {
                self.at += 1;
            }
        }
        items
    }

    fn table(&mut self, depth: usize) -> Value {
        let mut map = Map::new();
        loop {
            let start = self.at;
            match self.peek() {
                None => break,
                Some(Token::Mark('}')) => {
                    self.at += 1;
                    break;
                }
                Some(Token::Mark(',') | Token::Line) => self.at += 1,
                _ => {
                    let key = self.expression(depth + 1);
                    if self.take(':') {
                        let value = self.expression(depth + 1);
                        let key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
                        map.insert(key, value);
                    }
                }
            }
            if self.at == start {
                self.at += 1;
            }
        }
        Value::Object(map)
    }

    /// On to the comma, closing bracket or line that ends the expression.
    fn skip(&mut self) {
        let mut deep = 0usize;
        while let Some(token) = self.peek() {
            match token {
                Token::Mark('(' | '[' | '{') => deep += 1,
                Token::Mark(')' | ']' | '}') if deep == 0 => return,
                Token::Mark(')' | ']' | '}') => deep -= 1,
                Token::Mark(',') | Token::Line if deep == 0 => return,
                _ => {}
            }
            self.at += 1;
        }
    }
}

/// A number out of two.
fn computed(mark: char, twice: bool, left: &Value, right: &Value) -> Option<Value> {
    if let (Some(a), Some(b)) = (left.as_i64(), right.as_i64()) {
        let whole = match (mark, twice) {
            ('+', false) => a.checked_add(b),
            ('-', false) => a.checked_sub(b),
            ('*', false) => a.checked_mul(b),
            ('*', true) => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
            ('/', true) => a.checked_div_euclid(b),
            ('%', false) => a.checked_rem_euclid(b),
            _ => None,
        };
        if let Some(whole) = whole {
            return Some(whole.into());
        }
    }
    let (a, b) = (left.as_f64()?, right.as_f64()?);
    let number = match (mark, twice) {
        ('+', false) => a + b,
        ('-', false) => a - b,
        ('*', false) => a * b,
        ('/', false) => a / b,
        _ => return None,
    };
    Number::from_f64(number).map(Value::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn called(groups: &[Group], name: &str) -> Group {
        groups.iter().find(|group| group.called == name).cloned().unwrap_or_else(|| panic!("{name}: {groups:?}"))
    }

    #[test]
    fn literals_names_and_calls_within_calls() {
        let text = r#"
max_seq_length = 2048  # any
r: int = 16
model, tok = FastLanguageModel.from_pretrained(
    model_name = "unsloth/Qwen3-8B", max_seq_length = max_seq_length,
    load_in_4bit = True, dtype = torch.bfloat16,
)
trainer = SFTTrainer(
    model = model,
    args = TrainingArguments(
        per_device_train_batch_size = 2,
        lora_alpha = 2 * r, big = 2 ** 10, lr = 2e-4, neg = -1,
        bf16 = is_bfloat16_supported(), fp16 = not is_bfloat16_supported(),
        kwargs = {"use_reentrant": False}, mods = ["q_proj", "v_proj",],
        odd = 1 if x else 2, text = 'it''s', cmp = a == b, after = 3,
    ),
)
model.gradient_checkpointing_enable()
"#;
        let groups = read(text).unwrap();
        let base = called(&groups, "FastLanguageModel.from_pretrained");
        assert_eq!(base.get("max_seq_length"), Some(&json!(2048)));
        assert_eq!(base.get("dtype"), Some(&json!("torch.bfloat16")));
        let args = called(&groups, "TrainingArguments");
        for (key, value) in [
            ("per_device_train_batch_size", json!(2)),
            ("lora_alpha", json!(32)),
            ("big", json!(1024)),
            ("lr", json!(2e-4)),
            ("neg", json!(-1)),
            ("bf16", json!(true)),
            ("fp16", json!(false)),
            ("kwargs.use_reentrant", json!(false)),
            ("mods", json!(["q_proj", "v_proj"])),
            ("odd", json!("an expression")),
            ("text", json!("its")),
            ("after", json!(3)),
        ] {
            assert_eq!(args.get(key), Some(&value), "{key}");
        }
        called(&groups, "model.gradient_checkpointing_enable");
        assert_eq!(called(&groups, NAMES).get("r"), Some(&json!(16)));
    }

    #[test]
    fn what_is_no_python_has_no_calls() {
        for text in ["base_model: x\nbf16: auto\n", "[training]\nseq = 4\n", "see f(x) and g()", ""] {
            assert!(read(text).unwrap().is_empty(), "{text}");
        }
    }

    #[test]
    fn broken_code_ends() {
        let open = "f(".repeat(5_000) + "a=1";
        for text in [
            "f(a=1",
            "f(a=",
            "f(a=[1,{",
            "f(a='x",
            "f(a=1))))",
            "f(a=-",
            "f(a=(((",
            "''''f(",
            open.as_str(),
            "f(\u{e9}=1, a=2",
        ] {
            let _ = read(text).unwrap();
        }
    }
}
