//! Text into types, with line numbers. What is wrong in a file is said with its line and, for a name that does not
//! exist, the nearest one that does. Nothing here knows what the files are about.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{
    Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess,
    Visitor,
};
use serde_saphyr::{Error, Options, Spanned};

/// Something to say about a file: an error or a warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Counted from 1.
    pub line: Option<u64>,
    /// Path of the field as `profiles[0].schedulerName`; empty if the text has none.
    pub field: String,
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.text)
    }
}

impl std::error::Error for Finding {}

/// Reads one document.
pub fn decode<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, Finding> {
    with_deserializer(text, PhantomData::<T>)
}

/// Reads one document in which every field must be read by somebody, however deep it is.
pub fn decode_strict<T: DeserializeOwned>(text: &str) -> Result<T, Vec<Finding>> {
    let mut unread = Vec::new();
    let value = with_deserializer(text, Watched(&mut unread, PhantomData::<T>));
    let value = value.map_err(|finding| vec![finding])?;
    if unread.is_empty() {
        return Ok(value);
    }
    let findings = unread.into_iter().map(|field| Finding {
        line: line(text, &field),
        field,
        text: "unknown field, or one that nothing here depends on".to_owned(),
    });
    Err(findings.collect())
}

/// Notes the paths of fields that are skipped.
struct Watched<'u, T>(&'u mut Vec<String>, PhantomData<T>);

impl<'de, T: DeserializeOwned> DeserializeSeed<'de> for Watched<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        serde_ignored::deserialize(deserializer, |path| {
            let mut written = String::new();
            write_path(&path, &mut written);
            self.0.push(written);
        })
    }
}

fn write_path(path: &serde_ignored::Path<'_>, written: &mut String) {
    use serde_ignored::Path;
    match path {
        Path::Root => {}
        Path::Seq { parent, index } => {
            write_path(parent, written);
            written.push_str(&format!("[{index}]"));
        }
        Path::Map { parent, key } => {
            write_path(parent, written);
            if !written.is_empty() {
                written.push('.');
            }
            written.push_str(key);
        }
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => write_path(parent, written),
    }
}

/// Reads what is at a path and skips everything else; `None` if there is no such path.
pub(crate) fn decode_at<'de, S: DeserializeSeed<'de>>(
    text: &'de str,
    path: &str,
    seed: S,
) -> Result<Option<S::Value>, Finding> {
    let path = steps(path);
    with_deserializer(text, Descend { path: &path, seed })
}

/// The line of a field, or of the nearest thing around it that the text has.
pub fn line(text: &str, path: &str) -> Option<u64> {
    let path = steps(path);
    let (last, around) = path.split_last()?;
    let found = match last {
        Step::Key(key) => with_deserializer(
            text,
            Descend {
                path: around,
                seed: KeyLine(key),
            },
        ),
        Step::Index(_) => with_deserializer(
            text,
            Descend {
                path: &path,
                seed: ValueLine,
            },
        ),
    };
    match found {
        Ok(Some(Some(line))) => Some(line),
        Ok(_) => line(text, &written(around)),
        // The text cannot be read; the error about that has a line of its own.
        Err(_) => None,
    }
}

/// `, did you mean ...?` if a known name is close, else all of them.
pub fn suggest<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let distance =
        |name: &str| strsim::damerau_levenshtein(&found.to_lowercase(), &name.to_lowercase());
    let close = (found.chars().count() / 3).max(2);
    let nearest = known.iter().map(|name| (distance(name), *name)).min();
    match nearest {
        Some((far, name)) if far <= close => format!(", did you mean `{name}`?"),
        Some(_) if known.len() <= 16 => format!("; known are {}", known.join(", ")),
        _ => String::new(),
    }
}

fn with_deserializer<'de, S: DeserializeSeed<'de>>(
    text: &'de str,
    seed: S,
) -> Result<S::Value, Finding> {
    let options: Options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
        seed.deserialize(deserializer)
    })
    .map_err(|error| explain(error.without_snippet()))
}

fn explain(error: &Error) -> Finding {
    let mut line = error.location().map(|location| location.line());
    let text = match error {
        Error::SerdeUnknownField {
            field, expected, ..
        } => unknown_field(field, expected.iter().copied()),
        Error::SerdeUnknownVariant {
            variant, expected, ..
        } => {
            let known = expected.iter().copied();
            format!("unknown value `{variant}`{}", suggest(variant, known))
        }
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or_default();
            format!("key `{key}` is given twice")
        }
        Error::MultipleDocuments { .. } => "more than one document in a file".to_owned(),
        Error::Eof { .. } => {
            line = None;
            "the file is empty".to_owned()
        }
        error => {
            let text = error.to_string();
            let text = text.lines().next().unwrap_or_default();
            let (text, place) = text.split_once(" at line ").unwrap_or((text, ""));
            // Whoever erased the type of an error on its way left the words, and the innermost place in them.
            let number = place.split(|c: char| !c.is_ascii_digit()).next();
            line = number.and_then(|number| number.parse().ok()).or(line);
            let words = text.strip_prefix("unknown field `");
            match words.and_then(|words| words.split_once("`, expected one of ")) {
                Some((field, known)) => unknown_field(field, known.split(", ")),
                None => text.to_owned(),
            }
        }
    };
    Finding {
        line,
        field: String::new(),
        text,
    }
}

fn unknown_field<'a>(field: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known = known.filter(|name| !name.is_empty());
    format!("unknown field `{field}`{}", suggest(field, known))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

fn steps(path: &str) -> Vec<Step<'_>> {
    let parts = path.split(['.', '[']).filter(|part| !part.is_empty());
    parts
        .map(
            |part| match part.strip_suffix(']').and_then(|index| index.parse().ok()) {
                Some(index) => Step::Index(index),
                None => Step::Key(part),
            },
        )
        .collect()
}

fn written(path: &[Step<'_>]) -> String {
    let step = |step: &Step<'_>| match step {
        Step::Key(key) => format!(".{key}"),
        Step::Index(index) => format!("[{index}]"),
    };
    path.iter().map(step).collect()
}

/// Walks down a path and hands over there.
struct Descend<'p, S> {
    path: &'p [Step<'p>],
    seed: S,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Descend<'_, S> {
    type Value = Option<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if self.path.is_empty() {
            return self.seed.deserialize(deserializer).map(Some);
        }
        deserializer.deserialize_any(self)
    }
}

/// Whatever has no parts has no path into it.
macro_rules! ends_here {
    ($($visit:ident($type:ty)),*) => {
        $(fn $visit<E>(self, _: $type) -> Result<Self::Value, E> { Ok(None) })*
        fn visit_unit<E>(self) -> Result<Self::Value, E> { Ok(None) }
        fn visit_none<E>(self) -> Result<Self::Value, E> { Ok(None) }
    };
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for Descend<'_, S> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut seed, mut found) = (Some(self.seed), None);
        while let Some(key) = map.next_key::<String>()? {
            match seed.take_if(|_| self.path[0] == Step::Key(&key)) {
                Some(seed) => {
                    found = map.next_value_seed(Descend {
                        path: &self.path[1..],
                        seed,
                    })?
                }
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut seed = Some(self.seed);
        for index in 0.. {
            match seed.take_if(|_| self.path[0] == Step::Index(index)) {
                Some(seed) => {
                    let found = seq.next_element_seed(Descend {
                        path: &self.path[1..],
                        seed,
                    })?;
                    while seq.next_element::<IgnoredAny>()?.is_some() {}
                    return Ok(found.flatten());
                }
                None if seq.next_element::<IgnoredAny>()?.is_none() => break,
                None => {}
            }
        }
        Ok(None)
    }

    ends_here!(
        visit_bool(bool),
        visit_i64(i64),
        visit_u64(u64),
        visit_f64(f64),
        visit_str(&str)
    );
}

/// The line on which a value begins.
struct ValueLine;

impl<'de> DeserializeSeed<'de> for ValueLine {
    type Value = Option<u64>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let value = Spanned::<IgnoredAny>::deserialize(deserializer)?;
        Ok(Some(value.referenced.line()))
    }
}

/// The line on which a key stands.
struct KeyLine<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for KeyLine<'_> {
    type Value = Option<u64>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for KeyLine<'_> {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            map.next_value::<IgnoredAny>()?;
            if key.value == self.0 {
                found = Some(key.referenced.line());
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    ends_here!(
        visit_bool(bool),
        visit_i64(i64),
        visit_u64(u64),
        visit_f64(f64),
        visit_str(&str)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a: 1\nb:\n  - x: 1\n    y:\n      z: [1, 2]\n  - {}\n";

    #[test]
    fn lines_of_paths() {
        for (path, want) in [
            ("a", 1),
            ("b", 2),
            ("b[0]", 3),
            ("b[0].y", 4),
            ("b[0].y.z[1]", 5),
            ("b[1]", 6),
            ("b[1].missing.deeper", 6),
            ("b[7]", 2),
            ("a.x", 1),
        ] {
            assert_eq!(line(TEXT, path), Some(want), "{path}");
        }
        assert_eq!(line(TEXT, "missing"), None);
        assert_eq!(line("a: [", "a"), None);
    }

    #[test]
    fn values_at_paths() {
        let numbers = decode_at(TEXT, "b[0].y.z", PhantomData::<Vec<u32>>);
        assert_eq!(numbers, Ok(Some(vec![1, 2])));
        assert_eq!(decode_at(TEXT, "b[0].q", PhantomData::<u32>), Ok(None));
        assert_eq!(decode_at(TEXT, "b[9].q", PhantomData::<u32>), Ok(None));
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Small {
        #[serde(rename = "size")]
        _size: u8,
    }

    #[test]
    fn errors_in_one_sentence() {
        for (text, want) in [
            (
                "\nsiez: 1\n",
                "line 2: unknown field `siez`, did you mean `size`?",
            ),
            (
                "size: 1\n\ncolour: 1\n",
                "line 3: unknown field `colour`; known are size",
            ),
            ("size: 1\nsize: 2\n", "line 2: key `size` is given twice"),
            (
                "size: 1\n---\nsize: 2\n",
                "line 3: more than one document in a file",
            ),
            ("", "the file is empty"),
        ] {
            let found = decode::<Small>(text).unwrap_err();
            assert_eq!(found.to_string(), want, "{text:?}");
        }
    }
}
