//! Reads `table.txt`.
//!
//! - `kind v1 Pod core.v1.Pod`: the type that stands for a kind.
//! - `type core.v1.Probe [atomic]`: begins a type; `atomic` means one owner in server-side apply.
//! - ` name type #1.2 words...`, indented by one space: a field. Types are the scalars below, `[]T`, `{}T`
//!   (a map with string keys) or the name of a type. `#` is the protobuf number, with those of the embedded
//!   structs around it. Words: `pointer`, `always` (written even when empty), `required`, `set`, `map=keys` (list kinds of
//!   server-side apply), `atomic`, `merge`, `merge=key`, `replace`, `retainKeys` (strategic merge patch),
//!   `default=value`.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use super::{
    Field, ListKind, ListType, MapType, PatchStrategy, Schema, Struct, StructId, StructTypes, Type,
};

pub(super) const TEXT: &str = include_str!("table.txt");

static TABLE: LazyLock<TypeTable> =
    LazyLock::new(|| TypeTable::parse(TEXT).expect("the generated table is well formed"));

struct TypeTable {
    types: Arc<StructTypes>,
    /// By `apiVersion kind`.
    kinds: HashMap<String, StructId>,
    names: HashMap<String, StructId>,
}

pub(super) fn builtin(api_version: &str, kind: &str) -> Option<Schema> {
    let root = *TABLE.kinds.get(&format!("{api_version} {kind}"))?;
    Some(Schema {
        types: Arc::clone(&TABLE.types),
        root,
    })
}

/// A type by its name in the table, for the parts of custom objects that every object has.
pub(super) fn named(name: &str) -> Option<(&'static StructTypes, StructId)> {
    Some((&TABLE.types, *TABLE.names.get(name)?))
}

impl TypeTable {
    fn parse(text: &'static str) -> Result<Self, String> {
        let types = text
            .lines()
            .filter_map(|line| line.strip_prefix("type "))
            .map(|rest| rest.split(' ').next().unwrap_or(rest).to_owned());
        let names: HashMap<String, StructId> = types
            .enumerate()
            .map(|(index, name)| (name, StructId(index)))
            .collect();
        let mut structs: Vec<Struct> = Vec::with_capacity(names.len());
        let mut kinds = HashMap::new();
        let mut fields = Vec::new();
        let mut head: Option<&str> = None;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some(field) = line.strip_prefix(' ') {
                fields.push(parse_field(field, &names).ok_or_else(|| line.to_owned())?);
                continue;
            }
            structs.extend(head.take().map(|head| finish(head, &mut fields)));
            if let Some(rest) = line.strip_prefix("kind ") {
                let (kind, name) = rest.rsplit_once(' ').ok_or_else(|| line.to_owned())?;
                let id = names.get(name).ok_or_else(|| line.to_owned())?;
                kinds.insert(kind.to_owned(), *id);
            } else {
                head = Some(line.strip_prefix("type ").ok_or_else(|| line.to_owned())?);
            }
        }
        structs.extend(head.map(|head| finish(head, &mut fields)));
        Ok(Self {
            types: Arc::new(StructTypes { structs }),
            kinds,
            names,
        })
    }
}

fn finish(head: &str, fields: &mut Vec<Field>) -> Struct {
    let (name, words) = head.split_once(' ').unwrap_or((head, ""));
    Struct {
        typed: true,
        atomic: words == "atomic",
        ..Struct::new(name.to_owned(), std::mem::take(fields))
    }
}

fn parse_field(line: &str, names: &HashMap<String, StructId>) -> Option<Field> {
    let mut words = line.split(' ');
    let mut field = Field::new(words.next()?, parse_type(words.next()?, names)?);
    for word in words {
        let (word, value) = word.split_once('=').unwrap_or((word, ""));
        match (word, &mut field.ty) {
            ("pointer", _) => field.pointer = true,
            ("always", _) => field.always = true,
            ("set", Type::List(list)) => list.kind = ListKind::Set,
            ("map", Type::List(list)) => {
                let mut keys: Vec<String> = value.split(',').map(str::to_owned).collect();
                keys.sort();
                list.kind = ListKind::Map(keys);
            }
            ("atomic", Type::Map(map)) => map.atomic = true,
            ("merge", _) if value.is_empty() => field.patch = Some(PatchStrategy::MergeAsSet),
            ("merge", _) => field.patch = Some(PatchStrategy::MergeByKey(value.to_owned())),
            ("replace", _) => field.patch = Some(PatchStrategy::Replace),
            ("retainKeys", _) => field.retain_keys = true,
            ("required", _) => field.required = true,
            ("default", ty) => field.default = Some(parse_default(value, ty)?),
            (word, _) => {
                let numbers = word.strip_prefix('#')?.split('.');
                field.numbers = numbers.map(str::parse).collect::<Result<_, _>>().ok()?;
            }
        }
    }
    Some(field)
}

fn parse_default(text: &str, ty: &Type) -> Option<Value> {
    Some(match ty {
        Type::Int32 | Type::Int64 => Value::from(text.parse::<i64>().ok()?),
        Type::Bool => Value::from(text == "true"),
        _ => Value::from(text),
    })
}

fn parse_type(word: &str, names: &HashMap<String, StructId>) -> Option<Type> {
    if let Some(item) = word.strip_prefix("[]") {
        let item = parse_type(item, names)?;
        let kind = ListKind::Atomic;
        return Some(Type::List(Box::new(ListType { item, kind })));
    }
    if let Some(value) = word.strip_prefix("{}") {
        let value = parse_type(value, names)?;
        let atomic = false;
        return Some(Type::Map(Box::new(MapType { value, atomic })));
    }
    Some(match word {
        "string" => Type::String,
        "int32" => Type::Int32,
        "int64" => Type::Int64,
        "bool" => Type::Bool,
        "double" => Type::Double,
        "bytes" => Type::Bytes,
        "quantity" => Type::Quantity,
        "time" => Type::Time,
        "microtime" => Type::MicroTime,
        "duration" => Type::Duration,
        "intorstring" => Type::IntOrString,
        "any" => Type::Any,
        name => Type::Struct(*names.get(name)?),
    })
}
