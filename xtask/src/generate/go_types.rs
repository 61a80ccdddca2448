//! Reads the struct tags of Kubernetes' Go types: JSON names, protobuf numbers, what is omitted when empty.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The structs of one Go package, by name.
pub(crate) type Package = BTreeMap<String, Vec<Member>>;

/// One line of a Go struct.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Member {
    /// Empty when the fields of an embedded struct appear in the JSON object itself.
    pub(crate) json_name: String,
    /// The Go type, without the star of a pointer.
    pub(crate) go_type: String,
    pub(crate) pointer: bool,
    pub(crate) omit_empty: bool,
    pub(crate) omit_zero: bool,
    /// Absent for `TypeMeta`, which protobuf carries in the envelope.
    pub(crate) number: Option<u32>,
}

/// Reads every struct of the package in `directory`.
pub(crate) fn package(directory: &Path) -> Result<Package> {
    let mut package = Package::new();
    let entries = fs::read_dir(directory)
        .with_context(|| format!("cannot read the Go package {}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let generated = name.starts_with("zz_generated") || name.starts_with("generated");
        if name.ends_with(".go") && !name.ends_with("_test.go") && !generated {
            structs(&fs::read_to_string(&path)?, &mut package);
        }
    }
    Ok(package)
}

fn structs(source: &str, package: &mut Package) {
    let mut open: Option<(String, Vec<Member>)> = None;
    for line in source.lines() {
        match &mut open {
            None => {
                let name = line
                    .strip_prefix("type ")
                    .and_then(|rest| rest.strip_suffix(" struct {"));
                open = name.map(|name| (name.trim().to_owned(), Vec::new()));
            }
            Some((_, members)) if line != "}" => members.extend(member(line)),
            Some(_) => package.extend(open.take()),
        }
    }
}

/// `Name *Type `json:"name,omitempty" protobuf:"bytes,1,opt,name=name"``, or an embedded `Type `...``.
fn member(line: &str) -> Option<Member> {
    let line = line.trim();
    if line.starts_with("//") {
        return None;
    }
    let (declaration, tags) = line.split_once('`')?;
    let tags = tags.split_once('`')?.0;
    let json = tag(tags, "json")?;
    let (json_name, options) = json.split_once(',').unwrap_or((json, ""));
    if json_name == "-" {
        return None;
    }
    let go_type = declaration.split_whitespace().last()?;
    let number = tag(tags, "protobuf").and_then(|text| text.split(',').nth(1)?.parse().ok());
    Some(Member {
        json_name: json_name.to_owned(),
        go_type: go_type.trim_start_matches('*').to_owned(),
        pointer: go_type.starts_with('*'),
        omit_empty: options.split(',').any(|option| option == "omitempty"),
        omit_zero: options.split(',').any(|option| option == "omitzero"),
        number,
    })
}

fn tag<'a>(tags: &'a str, name: &str) -> Option<&'a str> {
    let start = tags.find(&format!("{name}:\""))? + name.len() + 2;
    tags[start..].split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn struct_tags_are_read() {
        let source = r#"
type Volume struct {
	// Name `json:"not this one"`
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
	VolumeSource `json:",inline" protobuf:"bytes,2,opt,name=volumeSource"`
	Size *int32 `json:"size,omitempty" protobuf:"varint,3,opt,name=size"`
	metav1.TypeMeta `json:",inline"`
	hidden int
}
"#;
        let mut package = Package::new();
        structs(source, &mut package);
        let members: Vec<_> = package["Volume"]
            .iter()
            .map(|m| {
                (
                    m.json_name.as_str(),
                    m.go_type.as_str(),
                    m.pointer,
                    m.omit_empty,
                    m.number,
                )
            })
            .collect();
        assert_eq!(
            members,
            [
                ("name", "string", false, false, Some(1)),
                ("", "VolumeSource", false, false, Some(2)),
                ("size", "int32", true, true, Some(3)),
                ("", "metav1.TypeMeta", false, false, None),
            ]
        );
    }
}
