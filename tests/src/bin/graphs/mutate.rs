//! Random changes of index files that leave most of them readable: what is put somewhere is what has been seen
//! under the same key, or a number or text of the same kind.

use std::collections::BTreeMap;

use serde_json::{Number, Value};

use super::image::Documents;

/// Values by the key that they were seen under, in all images.
#[derive(Debug, Default)]
pub struct Pool(BTreeMap<String, Vec<Value>>);

/// Values kept for a key.
const MOST_OF_A_KEY: usize = 400;

/// Texts that name what is not the job's, beside the paths that the harness makes.
const TEXTS: [&str; 14] = [
    "",
    "/",
    "/dev/mem",
    "/dev/kmsg",
    "/dev/ptmx",
    "/dev/tty",
    "/etc/shadow",
    "/proc/1/mem",
    "/proc/self/mem",
    "/proc/self/fd/3",
    "/proc/self/exe",
    "/proc/sysrq-trigger",
    "..",
    "a\u{0}b",
];

impl Pool {
    /// Notes everything in a document.
    pub fn add(&mut self, value: &Value) {
        match value {
            Value::Object(members) => {
                for (key, member) in members {
                    let known = self.0.entry(key.clone()).or_default();
                    if known.len() < MOST_OF_A_KEY && !known.contains(member) {
                        known.push(member.clone());
                    }
                    for item in member.as_array().into_iter().flatten() {
                        let known = self.0.entry(format!("{key}[]")).or_default();
                        if known.len() < MOST_OF_A_KEY && !known.contains(item) {
                            known.push(item.clone());
                        }
                    }
                    self.add(member);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.add(item)),
            _ => {}
        }
    }

    fn pick(&self, key: &str, random: &mut fastrand::Rng) -> Option<Value> {
        random.choice(self.0.get(key)?).cloned()
    }
}

/// Changes one to four things. `paths`: names of what the job's user may not have.
pub fn mutate(
    documents: &mut Documents,
    pool: &Pool,
    paths: &[String],
    random: &mut fastrand::Rng,
) -> Vec<String> {
    let mut told = Vec::new();
    for _ in 0..random.usize(1..=4) {
        let names: Vec<String> = documents.0.keys().cloned().collect();
        // As often as all processes together.
        let name = match random.bool() {
            true => super::image::GRAPH.to_owned(),
            false => random.choice(&names).cloned().unwrap_or_default(),
        };
        let Some(document) = documents.0.get_mut(&name) else { continue };
        let mut place = name;
        let (node, key) = descend(document, &mut place, random);
        let what = change(node, &key, pool, paths, random);
        told.push(format!("{place}: {what}"));
    }
    told
}

/// A node, and the key that it stands under.
fn descend<'v>(
    mut node: &'v mut Value,
    place: &mut String,
    random: &mut fastrand::Rng,
) -> (&'v mut Value, String) {
    let mut key = String::new();
    loop {
        let inner = match node {
            Value::Object(members) => members.len(),
            Value::Array(items) => items.len(),
            _ => 0,
        };
        // Not often the whole of something large: nothing would be left.
        if inner == 0 || (place.matches('/').count() > 1 && random.u8(..) < 60) {
            return (node, key);
        }
        let at = random.usize(..inner);
        match node {
            Value::Object(members) => {
                let Some((name, next)) = members.iter_mut().nth(at) else { unreachable!() };
                key.clone_from(name);
                place.push('/');
                place.push_str(name);
                node = next;
            }
            Value::Array(items) => {
                if !key.ends_with("[]") {
                    key.push_str("[]");
                }
                place.push_str(&format!("/{at}"));
                node = &mut items[at];
            }
            _ => unreachable!("it has something in it"),
        }
    }
}

fn change(
    node: &mut Value,
    key: &str,
    pool: &Pool,
    paths: &[String],
    random: &mut fastrand::Rng,
) -> String {
    if random.u8(..) < 70 {
        if let Some(other) = pool.pick(key, random) {
            *node = other;
            return "another one seen under this key".into();
        }
    }
    match node {
        Value::Number(number) => {
            let other = other_number(number, random);
            let told = format!("{other} for {number}");
            *node = other;
            told
        }
        Value::Bool(flag) => {
            *flag = !*flag;
            "turned round".into()
        }
        Value::String(text) => {
            *text = other_text(text, paths, random);
            format!("the text {:?}", text.chars().take(60).collect::<String>())
        }
        Value::Array(items) => change_list(items, random),
        Value::Object(members) => {
            let names: Vec<String> = members.keys().cloned().collect();
            match random.choice(&names) {
                Some(name) => {
                    members.remove(name);
                    format!("without {name}")
                }
                None => "as it was".into(),
            }
        }
        Value::Null => {
            *node = pool.pick(key, random).unwrap_or_else(|| 7.into());
            "something instead of nothing".into()
        }
    }
}

fn other_number(number: &Number, random: &mut fastrand::Rng) -> Value {
    let now = number.as_u64().unwrap_or(0);
    match random.u8(..16) {
        0 => 0.into(),
        1 => 1.into(),
        2 => (-1).into(),
        3 => i32::MAX.into(),
        4 => i32::MIN.into(),
        5 => u32::MAX.into(),
        6 => i64::MAX.into(),
        7 => i64::MIN.into(),
        8 => u64::MAX.into(),
        9 => now.wrapping_add(1).into(),
        10 => now.wrapping_sub(1).into(),
        11 => random.u32(..16).into(),
        12 => (now ^ (1 << random.u32(..32))).into(),
        13 => now.wrapping_add(4096).into(),
        14 => random.u32(..1024).into(),
        _ => random.u32(..).into(),
    }
}

fn other_text(text: &str, paths: &[String], random: &mut fastrand::Rng) -> String {
    let flipped = || {
        let digits: String = text.chars().rev().collect();
        digits
    };
    match random.u8(..8) {
        0..=3 => random.choice(paths).cloned().unwrap_or_default(),
        4 | 5 => (*random.choice(&TEXTS).unwrap_or(&"")).to_owned(),
        6 => text.repeat(random.usize(2..200)),
        _ => flipped(),
    }
}

fn change_list(items: &mut Vec<Value>, random: &mut fastrand::Rng) -> String {
    if items.is_empty() {
        return "an empty list as it was".into();
    }
    let at = random.usize(..items.len());
    let other = random.usize(..items.len());
    match random.u8(..6) {
        0 => {
            items.remove(at);
            format!("without {at}")
        }
        1 => {
            items.insert(other, items[at].clone());
            format!("{at} once more")
        }
        2 => {
            items.swap(at, other);
            format!("{at} and {other} exchanged")
        }
        3 => {
            items.truncate(at);
            format!("only the first {at}")
        }
        4 => {
            let many = random.usize(2..2000);
            let item = items[at].clone();
            items.extend(std::iter::repeat_n(item, many));
            format!("{at} {many} times more")
        }
        _ => {
            items[at] = items[other].clone();
            format!("{other} in the place of {at}")
        }
    }
}
