//! Turns OpenAPI schemas and Go struct tags into the lines of the table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Modules;
use super::go_types::{self, Member, Package};

const HEADER: &str = "\
# The types of Kubernetes objects. Written by `cargo xtask gen`; read by src/schema/table.rs, which
# explains the lines. Do not edit.
";

/// Types that JSON writes as one value, whatever their Go structs look like.
const SCALARS: &[(&str, &str)] = &[
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", "quantity"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Duration", "duration"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "any"),
    (
        "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
        "microtime",
    ),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", "time"),
    ("io.k8s.apimachinery.pkg.runtime.RawExtension", "any"),
    (
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        "intorstring",
    ),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
        "any",
    ),
];

/// The whole table for `kinds`: `(apiVersion, kinds)`.
pub(crate) fn table(modules: &Modules, kinds: &[(&str, &[&str])]) -> Result<String> {
    let mut source = Source::new(modules);
    let mut out = HEADER.to_owned();
    let mut wanted = BTreeSet::new();
    for (api_version, kinds) in kinds {
        source.load(api_version)?;
        for kind in *kinds {
            let name = source.kind(api_version, kind)?;
            writeln!(out, "kind {api_version} {kind} {}", short(&name))?;
            wanted.insert(name);
        }
    }
    let mut blocks = BTreeMap::new();
    while let Some(name) = wanted.pop_first() {
        let (block, references) = source.block(&name)?;
        blocks.insert(name, block);
        wanted.extend(references.into_iter().filter(|r| !blocks.contains_key(r)));
    }
    out.extend(blocks.into_values());
    Ok(out)
}

struct Source<'a> {
    modules: &'a Modules,
    schemas: BTreeMap<String, Value>,
    packages: BTreeMap<PathBuf, Package>,
}

/// Where a JSON field sits in Go and in protobuf.
struct Place {
    member: Member,
    /// Field numbers from the outer message inwards: more than one where Go embeds a struct.
    numbers: Vec<u32>,
}

impl<'a> Source<'a> {
    fn new(modules: &'a Modules) -> Self {
        Self {
            modules,
            schemas: BTreeMap::new(),
            packages: BTreeMap::new(),
        }
    }

    fn load(&mut self, api_version: &str) -> Result<()> {
        let file = match api_version.split_once('/') {
            None => format!("api__{api_version}_openapi.json"),
            Some((group, version)) => format!("apis__{group}__{version}_openapi.json"),
        };
        let path = self
            .modules
            .kubernetes
            .join("api/openapi-spec/v3")
            .join(file);
        let text = fs::read_to_string(&path)
            .with_context(|| format!("cannot read the OpenAPI document {}", path.display()))?;
        let mut document: Value = serde_json::from_str(&text)?;
        if let Value::Object(schemas) = document["components"]["schemas"].take() {
            self.schemas.extend(schemas);
        }
        Ok(())
    }

    /// The schema that stands for a kind.
    fn kind(&self, api_version: &str, kind: &str) -> Result<String> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let is_it =
            |gvk: &Value| gvk["group"] == group && gvk["version"] == version && gvk["kind"] == kind;
        let found = self.schemas.iter().find(|(_, schema)| {
            let kinds = schema["x-kubernetes-group-version-kind"].as_array();
            kinds.is_some_and(|kinds| kinds.iter().any(is_it))
        });
        match found {
            Some((name, _)) => Ok(name.clone()),
            None => bail!("no OpenAPI schema is marked as {api_version} {kind}"),
        }
    }

    /// The lines of one type, and the types that they mention.
    fn block(&mut self, name: &str) -> Result<(String, Vec<String>)> {
        let places = self
            .places(name)
            .with_context(|| format!("cannot read the Go type of {name}"))?;
        let schema = &self.schemas[name];
        let properties = schema["properties"]
            .as_object()
            .with_context(|| format!("{name} has no properties"))?;
        let mut out = format!("type {}", short(name));
        if schema["x-kubernetes-map-type"] == "atomic" {
            out.push_str(" atomic");
        }
        out.push('\n');
        let mut references = Vec::new();
        let sorted: BTreeMap<_, _> = properties.iter().collect();
        if let Some(extra) = places.keys().find(|key| !properties.contains_key(*key)) {
            bail!("{name}.{extra} is in the Go type but not in the OpenAPI schema");
        }
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for (field, schema) in sorted {
            let place = places
                .get(field)
                .with_context(|| format!("{name}.{field} is not in the Go type"))?;
            let (text, union) = self.type_text(schema, &mut references)?;
            write!(out, " {field} {text}")?;
            // The unions of CRD schemas are messages of their own in protobuf; no client sends them.
            if !place.numbers.is_empty() && !union {
                let numbers: Vec<String> = place.numbers.iter().map(u32::to_string).collect();
                write!(out, " #{}", numbers.join("."))?;
            }
            if place.member.pointer {
                out.push_str(" pointer");
            }
            if always_written(&place.member, &text) {
                out.push_str(" always");
            }
            if required.iter().any(|name| name == field) {
                out.push_str(" required");
            }
            out.push_str(&rules(schema)?);
            out.push('\n');
        }
        Ok((out, references))
    }

    /// A schema as a word of the table, and whether it is a union that only JSON can express.
    fn type_text(&self, schema: &Value, references: &mut Vec<String>) -> Result<(String, bool)> {
        let reference = schema["$ref"]
            .as_str()
            .or_else(|| schema["allOf"][0]["$ref"].as_str());
        if let Some(reference) = reference {
            let name = reference.trim_start_matches("#/components/schemas/");
            if let Some((_, scalar)) = SCALARS.iter().find(|(scalar, _)| *scalar == name) {
                return Ok(((*scalar).to_owned(), false));
            }
            let Some(target) = self.schemas.get(name) else {
                bail!("{name} is referred to but not in any document");
            };
            if target["properties"].is_object() {
                references.push(name.to_owned());
                return Ok((short(name).to_owned(), false));
            }
            return Ok(("any".to_owned(), true));
        }
        let text = match (schema["type"].as_str(), schema["format"].as_str()) {
            (Some("array"), _) => {
                format!("[]{}", self.type_text(&schema["items"], references)?.0)
            }
            (Some("object"), _) => {
                let values = &schema["additionalProperties"];
                format!("{{}}{}", self.type_text(values, references)?.0)
            }
            (Some("integer"), Some(format @ ("int32" | "int64"))) => format.to_owned(),
            (Some("number"), _) => "double".to_owned(),
            (Some("boolean"), _) => "bool".to_owned(),
            (Some("string"), Some("byte")) => "bytes".to_owned(),
            (Some("string"), _) => "string".to_owned(),
            other => bail!("a field has the unknown type {other:?}"),
        };
        Ok((text, false))
    }

    /// The Go members behind the JSON fields of a type, those of embedded structs included.
    fn places(&mut self, name: &str) -> Result<BTreeMap<String, Place>> {
        let (directory, go_name) = self.locate(name)?;
        if !self.packages.contains_key(&directory) {
            let package = go_types::package(&directory)?;
            self.packages.insert(directory.clone(), package);
        }
        let mut places = BTreeMap::new();
        collect(&self.packages[&directory], &go_name, &[], &mut places)?;
        Ok(places)
    }

    fn locate(&self, name: &str) -> Result<(PathBuf, String)> {
        let (package, go_name) = name.rsplit_once('.').context("a schema name has dots")?;
        let (module, rest) = if let Some(rest) = package.strip_prefix("io.k8s.api.") {
            (&self.modules.api, rest)
        } else if let Some(rest) = package.strip_prefix("io.k8s.apimachinery.") {
            (&self.modules.apimachinery, rest)
        } else if let Some(rest) = package.strip_prefix("io.k8s.apiextensions-apiserver.") {
            (&self.modules.apiextensions, rest)
        } else if let Some(rest) = package.strip_prefix("io.k8s.kube-aggregator.") {
            (&self.modules.aggregator, rest)
        } else {
            bail!("the Go package of {name} is not known");
        };
        Ok((module.join(rest.replace('.', "/")), go_name.to_owned()))
    }
}

fn collect(
    package: &Package,
    go_name: &str,
    outer: &[u32],
    places: &mut BTreeMap<String, Place>,
) -> Result<()> {
    let members = package
        .get(go_name)
        .with_context(|| format!("no struct {go_name}"))?;
    for member in members {
        let mut numbers = outer.to_vec();
        numbers.extend(member.number);
        if !member.json_name.is_empty() {
            let place = Place {
                member: member.clone(),
                numbers,
            };
            places.insert(member.json_name.clone(), place);
        } else if member.go_type.ends_with("TypeMeta") {
            for name in ["apiVersion", "kind"] {
                let member = Member {
                    json_name: name.to_owned(),
                    go_type: "string".to_owned(),
                    omit_empty: true,
                    ..member.clone()
                };
                places.insert(
                    name.to_owned(),
                    Place {
                        member,
                        numbers: Vec::new(),
                    },
                );
            }
        } else if member.go_type.ends_with("ListMeta") {
            bail!("{go_name} is a list");
        } else {
            collect(package, &member.go_type, &numbers, places)?;
        }
    }
    Ok(())
}

/// Go leaves out empty strings, numbers, lists and maps where the tag says so, but never a struct.
fn always_written(member: &Member, text: &str) -> bool {
    let go_struct = text.contains('.') && !text.starts_with(['[', '{'])
        || matches!(
            text,
            "time" | "microtime" | "quantity" | "intorstring" | "duration"
        );
    if go_struct && !member.pointer {
        !member.omit_zero
    } else {
        !member.omit_empty
    }
}

/// How server-side apply and strategic merge patches treat a field.
fn rules(schema: &Value) -> Result<String> {
    let mut out = String::new();
    match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => out.push_str(" set"),
        Some("map") => {
            let keys: Vec<_> = schema["x-kubernetes-list-map-keys"]
                .as_array()
                .context("a list of type map has keys")?
                .iter()
                .filter_map(Value::as_str)
                .collect();
            write!(out, " map={}", keys.join(","))?;
        }
        _ => (),
    }
    if schema["x-kubernetes-map-type"] == "atomic" {
        out.push_str(" atomic");
    }
    if let Some(strategies) = schema["x-kubernetes-patch-strategy"].as_str() {
        for strategy in strategies.split(',') {
            match (strategy, schema["x-kubernetes-patch-merge-key"].as_str()) {
                ("merge", Some(key)) => write!(out, " merge={key}")?,
                _ => write!(out, " {strategy}")?,
            }
        }
    }
    match &schema["default"] {
        Value::String(text) if !text.is_empty() => write!(out, " default={text}")?,
        Value::Number(number) if number.as_i64() != Some(0) => write!(out, " default={number}")?,
        Value::Bool(true) => out.push_str(" default=true"),
        _ => (),
    }
    Ok(out)
}

/// `io.k8s.api.core.v1.Pod` is `core.v1.Pod`.
fn short(name: &str) -> &str {
    let mut parts = name.rmatch_indices('.');
    match parts.nth(2) {
        Some((dot, _)) => &name[dot + 1..],
        None => name,
    }
}
