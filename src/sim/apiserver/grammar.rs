//! The grammar of label selectors in query strings: apimachinery's lexer and parser, their messages included. Matching is in `select`.

use super::select::Requirement;
use super::validate::{label_key_problem, label_value_problem};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    End,
    Word(String),
    Sign(&'static str),
    In,
    NotIn,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::End => "",
            Self::Word(text) => text,
            Self::Sign(sign) => sign,
            Self::In => "in",
            Self::NotIn => "notin",
        }
    }
}

const SIGNS: &[&str] = &["==", "!=", "(", ")", ",", "!", "=", ">", "<"];

fn tokens(text: &str) -> Vec<Token> {
    let special = |c: char| "=!(),><".contains(c);
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if special(first) {
            let sign = SIGNS.iter().find(|s| rest.starts_with(**s)).copied().unwrap_or(",");
            out.push(Token::Sign(sign));
            sign.len()
        } else {
            let length = rest.find(|c: char| special(c) || c.is_whitespace()).unwrap_or(rest.len());
            out.push(match rest.get(..length).unwrap_or_default() {
                "in" => Token::In,
                "notin" => Token::NotIn,
                word => Token::Word(word.to_owned()),
            });
            length
        };
        rest = rest.get(length..).unwrap_or_default().trim_start();
    }
    out
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    /// The token here. Where values are expected, `in` and `notin` are words.
    fn peek(&self, values: bool) -> Token {
        let token = self.tokens.get(self.at).cloned().unwrap_or(Token::End);
        match token {
            Token::In | Token::NotIn if values => Token::Word(token.text().to_owned()),
            token => token,
        }
    }

    fn next(&mut self, values: bool) -> Token {
        let token = self.peek(values);
        self.at += 1;
        token
    }

    fn requirements(&mut self) -> Result<Vec<Requirement>, String> {
        let mut out = Vec::new();
        loop {
            match self.peek(true) {
                Token::Word(_) | Token::Sign("!") => {
                    out.push(self.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?);
                    match self.next(true) {
                        Token::End => return Ok(out),
                        Token::Sign(",") => match self.peek(true) {
                            Token::Word(_) | Token::Sign("!") => {}
                            other => return Err(format!("found '{}', expected: identifier after ','", other.text())),
                        },
                        other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text())),
                    }
                }
                Token::End => return Ok(out),
                other => return Err(format!("found '{}', expected: !, identifier, or 'end of string'", other.text())),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let missing = self.peek(true) == Token::Sign("!");
        if missing {
            self.at += 1;
        }
        let key = match self.next(true) {
            Token::Word(key) => key,
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        if let Some(problem) = label_key_problem(&key) {
            return Err(format!("<nil>: Invalid value: {key:?}: {problem}"));
        }
        if missing {
            return Ok(Requirement::Missing(key));
        }
        let operator = match self.peek(false) {
            Token::End | Token::Sign(",") => return Ok(Requirement::Exists(key)),
            token => token,
        };
        self.at += 1;
        match operator {
            Token::In => Ok(Requirement::In(key.clone(), self.set(&key)?)),
            Token::NotIn => Ok(Requirement::NotIn(key.clone(), self.set(&key)?)),
            Token::Sign("=" | "==") => Ok(Requirement::In(key.clone(), vec![self.value(&key)?])),
            Token::Sign("!=") => Ok(Requirement::NotIn(key.clone(), vec![self.value(&key)?])),
            Token::Sign(sign @ (">" | "<")) => {
                let value = self.value(&key)?;
                let n = value.parse().map_err(|_| {
                    format!("values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer")
                })?;
                Ok(if sign == ">" { Requirement::Greater(key, n) } else { Requirement::Less(key, n) })
            }
            other => Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", other.text())),
        }
    }

    fn value(&mut self, key: &str) -> Result<String, String> {
        match self.peek(true) {
            Token::End | Token::Sign(",") => Ok(String::new()),
            Token::Word(value) => {
                self.at += 1;
                checked(key, 0, value)
            }
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    fn set(&mut self, key: &str) -> Result<Vec<String>, String> {
        match self.next(true) {
            Token::Sign("(") => {}
            other => return Err(format!("found '{}', expected: '('", other.text())),
        }
        let mut out = Vec::new();
        loop {
            match self.next(true) {
                Token::Word(value) => {
                    out.push(value);
                    match self.next(true) {
                        Token::Sign(",") => {}
                        Token::Sign(")") => break,
                        other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
                    }
                }
                Token::Sign(",") => out.push(String::new()),
                Token::Sign(")") => {
                    out.push(String::new());
                    break;
                }
                other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.text())),
            }
        }
        out.sort();
        out.dedup();
        out.into_iter().enumerate().map(|(n, value)| checked(key, n, value)).collect()
    }
}

fn checked(key: &str, n: usize, value: String) -> Result<String, String> {
    match label_value_problem(&value) {
        Some(problem) => Err(format!("values[{n}][{key}]: Invalid value: {value:?}: {problem}")),
        None => Ok(value),
    }
}

/// All requirements of a selector, or what a real server says of it.
pub fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    Parser { tokens: tokens(text), at: 0 }.requirements()
}
