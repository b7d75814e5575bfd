//! Valid values of any type that serde reads, found by what it says about invalid ones: so a message
//! that is new next year is sampled too.

use crate::random::Random;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use serde_path_to_error::Segment;
use std::collections::BTreeSet;

/// Texts of which one or other satisfies every check.
const TEXTS: [&str; 12] = [
    "a",
    "n1",
    "a.b",
    "127.0.0.1",
    "127.0.0.1:7070",
    "::1",
    "0123456789abcdef",
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "zstd",
    "graph.json",
    "/tmp/x",
    "auto",
];

/// Steps from nothing to a valid value, after which a new beginning is made.
const STEPS: usize = 3000;

/// What a type does not like about a value, and where.
struct Complaint {
    path: Vec<Segment>,
    text: String,
}

fn read<T: DeserializeOwned>(value: &Value) -> Result<T, Complaint> {
    serde_path_to_error::deserialize(value.clone()).map_err(|error| Complaint {
        path: error.path().iter().cloned().collect(),
        text: error.inner().to_string(),
    })
}

/// The names that an enum may begin with; none where it is no enum.
#[must_use]
pub fn variants<T: DeserializeOwned>() -> Vec<String> {
    let mut value = json!("?");
    for _ in 0..4 {
        let Err(complaint) = read::<T>(&value) else { return Vec::new() };
        match choices(&complaint.text) {
            names if !names.is_empty() => return names,
            _ => match missing(&complaint.text) {
                Some(field) => value = json!({ field: "?" }),
                None => value = json!({}),
            },
        }
    }
    Vec::new()
}

/// Valid values: for an enum at least one of each variant, else a few.
///
/// # Panics
/// Where a variant can't be made: then a text that it wants must be added above.
#[must_use]
pub fn samples<T: DeserializeOwned + Serialize>(random: &mut Random) -> Vec<Value> {
    samples_with::<T>(&[], random)
}

/// The same, with the fields of some variants: in an enum with its tag inside, large ones are not found by
/// what is said about them, since it is not said where.
///
/// # Panics
/// As [`samples`].
#[must_use]
pub fn samples_with<T: DeserializeOwned + Serialize>(
    fields: &[(&str, Value)],
    random: &mut Random,
) -> Vec<Value> {
    let names = variants::<T>();
    if names.is_empty() {
        return (0..4).filter_map(|_| sample::<T>(&Value::Null, random)).collect();
    }
    let tag = tag::<T>();
    let mut made = Vec::new();
    let mut lacking = BTreeSet::new();
    for name in names {
        let starts = match &tag {
            Some(tag) => {
                let known = fields.iter().find(|(variant, _)| *variant == name);
                let mut start = known.map_or_else(|| json!({}), |(_, fields)| fields.clone());
                start[tag] = json!(name);
                vec![start]
            }
            None => vec![json!(name), json!({ &name: null })],
        };
        let before = made.len();
        for start in starts {
            made.extend(sample::<T>(&start, random));
        }
        if made.len() == before {
            lacking.insert(name);
        }
    }
    assert!(lacking.is_empty(), "no sample of {}: {lacking:?}", std::any::type_name::<T>());
    made
}

fn tag<T: DeserializeOwned>() -> Option<String> {
    missing(&read::<T>(&json!({})).err()?.text)
}

/// A valid value that begins as `start` does.
fn sample<T: DeserializeOwned + Serialize>(start: &Value, random: &mut Random) -> Option<Value> {
    let plain = (0..20).find_map(|_| mended::<T>(start.clone(), random))?;
    // With what may be left out, too.
    let mut value = serde_json::to_value(read::<T>(&plain).ok()?).ok()?;
    for _ in 0..8 {
        let mut places = Vec::new();
        gaps(&mut value.clone(), &mut Vec::new(), &mut places);
        let Some(place) = random.pick(&places) else { break };
        let mut fuller = value.clone();
        let fillings =
            [json!([null]), json!({}), json!({"a": null}), json!(3), json!("a"), json!(true)];
        *at(&mut fuller, place)? = random.pick(&fillings)?.clone();
        if let Some(better) = mended::<T>(fuller, random) {
            value = serde_json::to_value(read::<T>(&better).ok()?).ok()?;
        }
    }
    Some(value)
}

fn mended<T: DeserializeOwned>(mut value: Value, random: &mut Random) -> Option<Value> {
    for _ in 0..STEPS {
        match read::<T>(&value) {
            Ok(_) => return Some(value),
            Err(complaint) => mend(&mut value, &complaint, random),
        }
    }
    None
}

/// A place in a value.
type Place = Vec<String>;

fn at<'a>(value: &'a mut Value, place: &[String]) -> Option<&'a mut Value> {
    place.iter().try_fold(value, |value, key| match value {
        Value::Object(map) => map.get_mut(key),
        Value::Array(list) => list.get_mut(key.parse::<usize>().ok()?),
        _ => None,
    })
}

/// Everything empty.
fn gaps(value: &mut Value, here: &mut Place, found: &mut Vec<Place>) {
    match value {
        Value::Null => found.push(here.clone()),
        Value::Array(list) if list.is_empty() => found.push(here.clone()),
        Value::Object(map) if map.is_empty() => found.push(here.clone()),
        Value::Array(list) => {
            for (index, item) in list.iter_mut().enumerate() {
                here.push(index.to_string());
                gaps(item, here, found);
                here.pop();
            }
        }
        Value::Object(map) => {
            for (key, item) in map.iter_mut() {
                here.push(key.clone());
                gaps(item, here, found);
                here.pop();
            }
        }
        _ => {}
    }
}

/// All objects, the outermost first.
fn objects(value: &Value, here: &mut Place, found: &mut Vec<Place>) {
    let inner: Vec<(String, &Value)> = match value {
        Value::Array(list) => {
            list.iter().enumerate().map(|(index, item)| (index.to_string(), item)).collect()
        }
        Value::Object(map) => {
            found.push(here.clone());
            map.iter().map(|(key, item)| (key.clone(), item)).collect()
        }
        _ => return,
    };
    for (key, item) in inner {
        here.push(key);
        objects(item, here, found);
        here.pop();
    }
}

/// Everything that is a number, a text or nothing.
fn leaves(value: &Value, here: &mut Place, found: &mut Vec<Place>) {
    match value {
        Value::Array(list) if !list.is_empty() => {
            for (index, item) in list.iter().enumerate() {
                here.push(index.to_string());
                leaves(item, here, found);
                here.pop();
            }
        }
        Value::Object(map) if !map.is_empty() => {
            for (key, item) in map {
                here.push(key.clone());
                leaves(item, here, found);
                here.pop();
            }
        }
        _ => found.push(here.clone()),
    }
}

fn mend(value: &mut Value, complaint: &Complaint, random: &mut Random) {
    let mut node = value;
    for segment in &complaint.path {
        let key = match segment {
            Segment::Seq { index } => index.to_string(),
            Segment::Map { key } => key.clone(),
            Segment::Enum { variant } => variant.clone(),
            Segment::Unknown => break,
        };
        if at(node, std::slice::from_ref(&key)).is_none() {
            break;
        }
        // A map's key is meant, and not what is under it.
        if complaint.text.contains("expected key to be") && TEXTS.contains(&key.as_str()) {
            break;
        }
        let Some(next) = at(node, &[key]) else { return };
        node = next;
    }
    let text = &complaint.text;
    if text.contains("expected key to be") {
        *node = json!({"7": null});
        return;
    }
    if text.contains("map with a single key") {
        // A field was put here that another object was meant to have.
        if let Value::Object(map) = node {
            let known = map.iter().find(|(_, value)| !value.is_null()).or(map.iter().next());
            let known = known.map(|(key, value)| (key.clone(), value.clone()));
            *map = Map::from_iter(known);
        }
        return;
    }
    if let Some(field) = missing(text) {
        // Below an enum with its tag inside, the path is lost: any object may be meant.
        let mut places = Vec::new();
        objects(node, &mut Vec::new(), &mut places);
        let place = random.pick(&places).cloned().unwrap_or_default();
        let Some(node) = at(node, &place) else { return };
        match node {
            Value::Object(map) => drop(map.entry(field).or_insert(Value::Null)),
            other => *other = Value::Object(Map::from_iter([(field, Value::Null)])),
        }
        return;
    }
    let names = choices(text);
    let wanted = wanted(text, random);
    // Below an enum with its tag inside, the path is lost: any leaf may be meant.
    if matches!(node, Value::Object(map) if !map.is_empty()) {
        let mut places = Vec::new();
        leaves(node, &mut Vec::new(), &mut places);
        if let Some(is_meant) = meant(text) {
            places.retain(|place| at(node, place).is_some_and(|leaf| is_meant(leaf)));
        }
        let tags = ["command", "event", "ask", "answer", "greeting", "reply", "entry"];
        places.retain(|place| !(place.len() == 1 && tags.contains(&place[0].as_str())));
        let Some(place) = random.pick(&places).cloned() else { return };
        let Some(found) = at(node, &place) else { return };
        node = found;
    }
    if let Some(name) = random.pick(&names) {
        *node = json!(name);
    } else if text.contains("unit variant, expected") {
        if let Value::String(name) = node {
            *node = json!({ name.clone(): null });
        }
    } else if let Some(wanted) = wanted {
        *node = wanted;
    }
}

/// What kind of value was found that should be another.
fn meant(text: &str) -> Option<fn(&Value) -> bool> {
    if text.contains("unit variant, expected") {
        return Some(Value::is_string);
    }
    let found = text.strip_prefix("invalid type: ").or(text.strip_prefix("invalid value: "))?;
    Some(match found.split([' ', ',']).next()? {
        "null" | "unit" | "Option" => Value::is_null,
        "integer" | "floating" => Value::is_number,
        "string" => Value::is_string,
        "boolean" => Value::is_boolean,
        "sequence" => Value::is_array,
        "map" => Value::is_object,
        _ => return None,
    })
}

fn missing(text: &str) -> Option<String> {
    Some(text.strip_prefix("missing field `")?.split_once('`')?.0.to_owned())
}

/// The names in "unknown variant `?`, expected `a` or `b`".
fn choices(text: &str) -> Vec<String> {
    if !text.starts_with("unknown variant") {
        return Vec::new();
    }
    let Some((_, expected)) = text.split_once("expected") else { return Vec::new() };
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// A value as "invalid type: ..., expected ..." asks for, or a text for what checks texts.
fn wanted(text: &str, random: &mut Random) -> Option<Value> {
    let expected = text.split_once("expected ").map_or("", |(_, expected)| expected);
    let has = |word: &str| expected.contains(word);
    let number = ["u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "isize"];
    Some(if has("boolean") {
        json!(random.once_in(2))
    } else if expected.split_whitespace().any(|word| number.contains(&word)) {
        json!(random.below(40))
    } else if has("f64") || has("f32") {
        json!(random.below(40) as f64 + 0.5)
    } else if has("IP address") || has("socket address") {
        json!(random.pick(&TEXTS[3..6])?)
    } else if let Some(count) = elements(expected) {
        Value::Array(vec![Value::Null; count])
    } else if has("a sequence") || has("an array") {
        if random.once_in(3) { json!([]) } else { json!([null]) }
    } else if has("a map") {
        if random.once_in(3) { json!({}) } else { json!({ *random.pick(&TEXTS)?: null }) }
    } else if has("internally tagged") {
        json!({})
    } else if has("variant identifier") || has("enum") {
        json!("?")
    } else if has("struct") {
        json!({})
    } else if has("unit") {
        Value::Null
    } else {
        json!(random.pick(&TEXTS)?)
    })
}

/// How many, where an array or a tuple of a fixed length is wanted.
fn elements(expected: &str) -> Option<usize> {
    let is_one =
        ["array of length", "tuple of size", "elements"].iter().any(|word| expected.contains(word));
    let mut numbers = expected.split_whitespace().filter_map(|word| word.parse::<usize>().ok());
    numbers.next().filter(|count| is_one && *count <= 64)
}
