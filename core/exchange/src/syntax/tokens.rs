//! Python's text as tokens.

use serde_json::Value;

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    /// A name, dots and all.
    Name(String),
    /// A number.
    Number(Value),
    /// A text in quotes.
    Text(String),
    /// Any other character.
    Mark(char),
    /// The end of a line outside of brackets.
    Line,
}

/// The tokens; dotted names are one, comments none, and a line ends only outside of brackets.
pub fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text;
    let mut deep = 0usize;
    let mut fresh = true;
    while let Some(c) = rest.chars().next() {
        // A line of a notebook that is the shell's.
        if fresh && matches!(c, '%' | '!') {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
            continue;
        }
        match c {
            '\n' => {
                if deep == 0 {
                    tokens.push(Token::Line);
                }
                fresh = deep == 0;
                rest = &rest[1..];
                continue;
            }
            '#' => {
                rest = rest.find('\n').map_or("", |end| &rest[end..]);
                continue;
            }
            '\\' => rest = rest[1..].trim_start_matches(['\r', '\n']),
            _ if c.is_whitespace() => {
                rest = &rest[c.len_utf8()..];
                continue;
            }
            '"' | '\'' => {
                let (text, after) = quoted(rest, c);
                tokens.push(Token::Text(text));
                rest = after;
            }
            _ if c.is_ascii_digit() || c == '.' && rest[1..].starts_with(|d: char| d.is_ascii_digit()) => {
                let mut end = 0;
                let mut exponent = false;
                for (i, d) in rest.char_indices() {
                    let sign = (d == '-' || d == '+') && exponent;
                    exponent = matches!(d, 'e' | 'E');
                    if !(d.is_ascii_alphanumeric() || d == '.' || d == '_' || sign) {
                        break;
                    }
                    end = i + d.len_utf8();
                }
                tokens.push(Token::Number(super::scalar(&rest[..end])));
                rest = &rest[end..];
            }
            _ if c.is_alphabetic() || c == '_' || c == '.' => {
                let end = rest.find(|d: char| !(d.is_alphanumeric() || d == '_' || d == '.')).unwrap_or(rest.len());
                let word = &rest[..end];
                let after = &rest[end..];
                // f"...", r'...': the text as it stands.
                let prefix = word.len() <= 2 && word.chars().all(|p| "fFrRbBuU".contains(p));
                match after.chars().next() {
                    Some(quote @ ('"' | '\'')) if prefix => {
                        let (text, after) = quoted(after, quote);
                        tokens.push(Token::Text(text));
                        rest = after;
                    }
                    _ => {
                        tokens.push(Token::Name(word.to_owned()));
                        rest = after;
                    }
                }
            }
            _ => {
                match c {
                    '(' | '[' | '{' => deep += 1,
                    ')' | ']' | '}' => deep = deep.saturating_sub(1),
                    _ => {}
                }
                tokens.push(Token::Mark(c));
                rest = &rest[c.len_utf8()..];
            }
        }
        fresh = false;
    }
    tokens
}

/// A text in quotes, and what follows it.
fn quoted(rest: &str, quote: char) -> (String, &str) {
    let triple: String = [quote; 3].iter().collect();
    let (open, long) = if rest.starts_with(&triple) { (3, true) } else { (1, false) };
    let body = &rest[open..];
    let mut text = String::new();
    let mut chars = body.char_indices();
    while let Some((i, c)) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some((_, 'n')) => text.push('\n'),
                Some((_, 't')) => text.push('\t'),
                Some((_, '\n')) | None => {}
                Some((_, other)) => text.push(other),
            },
            _ if c == quote && (!long || body[i..].starts_with(&triple)) => return (text, &body[i + open..]),
            // A line ends a text that was never closed.
            '\n' if !long => return (text, &body[i..]),
            _ => text.push(c),
        }
    }
    (text, "")
}
