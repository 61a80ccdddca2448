//! Modules form layers: a module uses only itself and the modules below it in the table of the file that declares them.
//!
//! It reads the modules that are compiled, without what is only compiled for tests.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::{Attribute, Item, ItemMod};

use crate::process;

/// The files whose documentation has a table of their modules, the highest one first.
const TABLES: &[&str] = &[
    "crates/apiserver/src/lib.rs",
    "crates/control-plane/src/lib.rs",
    "crates/engine/src/lib.rs",
    "crates/engine/src/scheduling.rs",
];

/// A row of a table. If it has a third column, that names the modules inside of the module.
#[derive(Debug, PartialEq, Eq)]
struct Layer {
    name: String,
    inner: Option<String>,
}

/// A compiled source file: the path of its module in the crate, and its code.
struct Module {
    path: Vec<String>,
    code: String,
}

/// Every broken rule, as a sentence; empty when all hold.
pub(crate) fn violations() -> Result<Vec<String>> {
    let mut found = Vec::new();
    for table in TABLES {
        let of_table = violations_of(&process::root().join(table))?;
        found.extend(of_table.into_iter().map(|it| format!("{table}: {it}")));
    }
    Ok(found)
}

fn violations_of(table: &Path) -> Result<Vec<String>> {
    let text = read(table)?;
    let layers = layers(&text);
    let mut modules = Vec::new();
    let inside = match table.file_stem().and_then(|stem| stem.to_str()) {
        None | Some("lib") => Vec::new(),
        Some(name) => vec![name.to_owned()],
    };
    collect(table, inside.clone(), &mut modules)?;
    let mut found = Vec::new();
    let name_of = |module: &Module| module.path.get(inside.len()).cloned();
    for module in modules.iter().filter(|it| it.path.len() > inside.len()) {
        let own = &module.path[inside.len()];
        let Some(rank) = layers.iter().position(|layer| layer.name == *own) else {
            found.push(format!("the table does not have the module `{own}`"));
            continue;
        };
        if let (Some(named), [inner]) = (&layers[rank].inner, &module.path[inside.len() + 1..])
            && !named.contains(&format!("`{inner}`"))
        {
            found.push(format!("the row of `{own}` does not name its `{inner}`"));
        }
        let is_higher = |used: &String| layers[..rank].iter().any(|layer| layer.name == *used);
        let higher = used(module, &inside).into_iter().filter(is_higher);
        found.extend(higher.map(|used| {
            let path = module.path.join("::");
            format!("`{path}` uses `{used}`, which is above `{own}` in the table")
        }));
    }
    for layer in &layers {
        let is_module = |module: &Module| name_of(module).as_ref() == Some(&layer.name);
        if !modules.iter().any(is_module) {
            found.push(format!(
                "the table names `{}`, which is no module",
                layer.name
            ));
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// The rows of the table in the documentation of a file.
fn layers(text: &str) -> Vec<Layer> {
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    let rows = lines.filter_map(|line| line.trim().strip_prefix('|'));
    rows.filter_map(|row| {
        let cells: Vec<&str> = row.trim_end_matches('|').split('|').collect();
        let name = cells.first()?.split('`').nth(1)?.to_owned();
        let inner = cells.get(2).map(|&cell| cell.to_owned());
        Some(Layer { name, inner })
    })
    .collect()
}

/// The module of this file and those that it declares, but not what is only compiled for tests.
fn collect(file: &Path, path: Vec<String>, found: &mut Vec<Module>) -> Result<()> {
    let mut code = read(file)?;
    let parsed = syn::parse_file(&code).with_context(|| format!("in {}", file.display()))?;
    let mut declared = Vec::new();
    let mut test_code = Vec::new();
    split(&parsed.items, &mut declared, &mut test_code);
    for range in test_code {
        let blank = " ".repeat(range.len());
        code.replace_range(range, &blank);
    }
    let stem = file.file_stem().and_then(|stem| stem.to_str());
    let folder = match stem {
        Some("lib") | None => file.with_file_name(""),
        Some(stem) => file.with_file_name(stem),
    };
    for name in declared {
        let inner = [path.clone(), vec![name.clone()]].concat();
        collect(&folder.join(format!("{name}.rs")), inner, found)?;
    }
    found.push(Module { path, code });
    Ok(())
}

/// The modules that are declared in files of their own, and the code that is only compiled for tests.
fn split(items: &[Item], declared: &mut Vec<String>, tests: &mut Vec<std::ops::Range<usize>>) {
    for item in items {
        if attributes(item).iter().any(is_for_tests) {
            tests.push(item.span().byte_range());
        } else if let Item::Mod(ItemMod {
            ident,
            content: None,
            ..
        }) = item
        {
            declared.push(ident.to_string());
        }
    }
}

fn is_for_tests(attribute: &Attribute) -> bool {
    let tokens = attribute.meta.require_list();
    attribute.path().is_ident("cfg") && tokens.is_ok_and(|list| list.tokens.to_string() == "test")
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The names that stand directly below `inside` in paths of the module.
fn used(module: &Module, inside: &[String]) -> Vec<String> {
    let tokens: TokenStream = match module.code.parse() {
        Ok(tokens) => tokens,
        Err(_) => return Vec::new(),
    };
    let mut paths = Vec::new();
    find_paths(tokens, &module.path, &mut paths);
    let below = |path: &Vec<String>| path.strip_prefix(inside)?.first().cloned();
    let mut found: Vec<String> = paths.iter().filter_map(below).collect();
    found.sort();
    found.dedup();
    found
}

/// Paths from the root of the crate: those that begin with `crate` or `super`, also in macros and in groups of `use`.
fn find_paths(tokens: TokenStream, module: &[String], found: &mut Vec<Vec<String>>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Ident(word) if word == "crate" => {
                at = follow(&tokens, at + 1, Vec::new(), found);
                continue;
            }
            TokenTree::Ident(word) if word == "super" => {
                let mut from = module.to_vec();
                from.pop();
                at = follow(&tokens, at + 1, from, found);
                continue;
            }
            TokenTree::Ident(word) if word == "mod" => {
                if let [TokenTree::Ident(name), TokenTree::Group(body), ..] = &tokens[at + 1..] {
                    let inner = [module.to_vec(), vec![name.to_string()]].concat();
                    find_paths(body.stream(), &inner, found);
                    at += 3;
                    continue;
                }
            }
            TokenTree::Group(group) => find_paths(group.stream(), module, found),
            _ => {}
        }
        at += 1;
    }
}

/// Reads `::name` and `::{...}` from here on. Returns where the path ends.
fn follow(
    tokens: &[TokenTree],
    mut at: usize,
    mut path: Vec<String>,
    found: &mut Vec<Vec<String>>,
) -> usize {
    let is_colon =
        |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(it)) if it.as_char() == ':');
    while is_colon(at) && is_colon(at + 1) {
        match tokens.get(at + 2) {
            Some(TokenTree::Ident(word)) if word == "super" => {
                path.pop();
            }
            Some(TokenTree::Ident(word)) => path.push(word.to_string()),
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                let is_comma =
                    |it: &TokenTree| matches!(it, TokenTree::Punct(it) if it.as_char() == ',');
                for element in inner.split(is_comma) {
                    let Some(TokenTree::Ident(first)) = element.first() else {
                        continue;
                    };
                    let path = [path.clone(), vec![first.to_string()]].concat();
                    follow(element, 1, path, found);
                }
                return at + 3;
            }
            _ => break,
        }
        at += 3;
    }
    found.push(path);
    at
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_use_only_those_below_them() {
        assert_eq!(violations().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn every_way_to_name_a_module_is_found() {
        for (code, path, want) in [
            ("use crate::server::Cluster;", "kinds::pod", vec!["server"]),
            ("let x = crate::custom::kinds();", "kinds", vec!["custom"]),
            ("use super::server::Cluster;", "kinds", vec!["server"]),
            (
                "use super::super::server::Cluster;",
                "kinds::pod",
                vec!["server"],
            ),
            ("use super::pod;", "kinds::node", vec!["kinds"]),
            (
                "use crate::{kinds::{A, B}, server};",
                "x",
                vec!["kinds", "server"],
            ),
            ("pub(crate) use crate::store as s;", "x", vec!["store"]),
            ("format!(\"{}\", crate::store::X)", "x", vec!["store"]),
            ("mod inner { use super::super::store; }", "x", vec!["store"]),
            ("mod inner { use super::Own; }", "x", vec!["x"]),
            (
                "// crate::store\n/// [`crate::store`]\nfn f() {}",
                "x",
                vec![],
            ),
        ] {
            let module = Module {
                path: path.split("::").map(str::to_owned).collect(),
                code: code.to_owned(),
            };
            assert_eq!(used(&module, &[]), want, "{code}");
        }
    }

    /// The violations of a crate that has these files.
    fn of(files: &[(&str, &str)]) -> Vec<String> {
        let folder = std::env::temp_dir().join(format!("layers-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        for (name, text) in files {
            let file = folder.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let found = violations_of(&folder.join(files[0].0)).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        found
    }

    #[test]
    fn a_table_is_compared_with_what_is_compiled() {
        let table = "//! | module | what |\n//! |---|---|\n//! | [`top`] | a |\n//! | [`low`] | b |\n//! | `gone` | c |\n\
            mod low;\nmod top;\nmod new;\n#[cfg(test)]\nmod tests;\n";
        let found = of(&[
            ("lib.rs", table),
            ("top.rs", "use crate::low::f;\n"),
            (
                "low.rs",
                "mod inner;\n#[cfg(test)]\nuse crate::top::g;\n#[cfg(test)]\nmod tests { use crate::top::g; }\n",
            ),
            ("low/inner.rs", "use crate::top::g;\n"),
            ("new.rs", ""),
        ]);
        assert_eq!(
            found,
            [
                "`low::inner` uses `top`, which is above `low` in the table",
                "the table does not have the module `new`",
                "the table names `gone`, which is no module",
            ]
        );
    }
}
