//! A copy of the workspace with all mutants in one build. What does not compile is left out.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::rewrite::{Rewritten, rewrite};
use super::sites::Site;
use crate::process;

const SWITCH: &str = include_str!("switch.rs");

/// What the tests of the engine and of the scenarios need.
const CHECK: &[&str] = &["build", "--package=engine"];
const TESTS: &[&str] = &[
    "test",
    "--no-run",
    "--package=engine",
    "--package=sim",
    "--lib",
    "--test=engine",
    "--test=scenarios",
];

/// A test binary and the folder that it runs in.
#[derive(Debug, Clone)]
pub(super) struct Binary {
    pub(super) program: PathBuf,
    pub(super) folder: PathBuf,
}

/// The binaries of a build, in the order in which they are tried.
pub(super) struct Binaries {
    pub(super) unit: Binary,
    pub(super) engine: Binary,
    pub(super) scenarios: Binary,
}

pub(super) struct Tree<'a> {
    folder: PathBuf,
    sites: &'a [Site],
    /// Keys of sites that do not compile.
    dropped: HashSet<String>,
}

impl<'a> Tree<'a> {
    pub(super) fn new(sites: &'a [Site]) -> Result<Self> {
        let folder = process::root().join("target/mutants");
        fs::create_dir_all(&folder)?;
        let known = fs::read_to_string(folder.join("dropped.txt")).unwrap_or_default();
        Ok(Self {
            folder,
            sites,
            dropped: known.lines().map(str::to_owned).collect(),
        })
    }

    pub(super) fn is_dropped(&self, site: &Site) -> bool {
        self.dropped.contains(&site.key())
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn root(&self) -> PathBuf {
        self.folder.join("tree")
    }

    /// Copies and builds; again without what does not compile, until all of it does.
    pub(super) fn build(&mut self) -> Result<Binaries> {
        self.copy_workspace()?;
        for flags in [CHECK, TESTS] {
            loop {
                let files = self.write_mutants()?;
                let built = self.cargo(flags)?;
                let Some(errors) = built.errors else {
                    if flags == TESTS {
                        return binaries(&built.programs);
                    }
                    break;
                };
                let before = self.dropped.len();
                self.drop_failing(&files, &errors)?;
                let more = self.dropped.len() - before;
                eprintln!("mutants that do not compile: {more} more");
            }
        }
        bail!("the tests have not been built");
    }

    /// Files keep their time as long as they do not change, so that Cargo compiles nothing again.
    fn copy_workspace(&self) -> Result<()> {
        let listed = process::read(process::git().args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "--",
            ".",
            ":(exclude)target*",
        ]))?;
        let mut known: HashSet<PathBuf> = HashSet::new();
        let root = self.root();
        let mutated: HashSet<&str> = self.sites.iter().map(|it| it.file.as_str()).collect();
        for name in listed.lines() {
            let (from, to) = (process::root().join(name), root.join(name));
            // Deleted, but not yet committed.
            if !from.is_file() {
                continue;
            }
            known.insert(to.clone());
            if !mutated.contains(name) {
                let mut content = fs::read(&from)?;
                if name == "crates/engine/src/lib.rs" {
                    // Mutants have many brackets that the compiler would warn about.
                    let attribute = b"#![allow(warnings)]\n".to_vec();
                    content = [attribute, content, b"\npub mod mutant;\n".to_vec()].concat();
                }
                write(&to, &content)?;
            }
        }
        let switch = root.join("crates/engine/src/mutant.rs");
        write(&switch, SWITCH.as_bytes())?;
        known.insert(switch);
        remove_others(&root, &known)
    }

    fn write_mutants(&self) -> Result<BTreeMap<&'a str, Rewritten>> {
        let mut by_file: BTreeMap<&str, Vec<(usize, &Site)>> = BTreeMap::new();
        for (id, site) in self.sites.iter().enumerate() {
            let sites = by_file.entry(&site.file).or_default();
            if !self.is_dropped(site) {
                sites.push((id, site));
            }
        }
        let mut files = BTreeMap::new();
        for (file, sites) in by_file {
            let text = fs::read_to_string(process::root().join(file))?;
            let rewritten = rewrite(&text, &sites);
            write(&self.root().join(file), rewritten.text.as_bytes())?;
            files.insert(file, rewritten);
        }
        Ok(files)
    }

    fn cargo(&self, flags: &[&str]) -> Result<Built> {
        let mut command: Command = process::cargo();
        command
            .current_dir(self.root())
            .env("CARGO_TARGET_DIR", self.folder.join("build"))
            .args(flags)
            .args(["--locked", "--quiet", "--message-format=json"]);
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start cargo")?;
        let output = child.stdout.take().context("cargo has no output")?;
        let mut errors = Vec::new();
        let mut programs = Vec::new();
        for line in BufReader::new(output).lines() {
            let message: Value = serde_json::from_str(&line?)?;
            if message["message"]["level"] == "error" {
                errors.push(message["message"].clone());
            }
            if message["profile"]["test"] == true {
                programs.push(message);
            }
        }
        let failed = !child.wait()?.success();
        Ok(Built {
            errors: failed.then_some(errors),
            programs,
        })
    }

    fn drop_failing(&mut self, files: &BTreeMap<&str, Rewritten>, errors: &[Value]) -> Result<()> {
        let mut failing: HashSet<usize> = HashSet::new();
        let mut unknown = Vec::new();
        for error in errors {
            let sites = failing_sites(files, error);
            // "Aborting due to 2 previous errors" has no place.
            if sites.is_empty() && error["spans"] != json!([]) {
                unknown.push(error["rendered"].as_str().unwrap_or_default());
            }
            failing.extend(sites);
        }
        if failing.is_empty() {
            bail!("the copy does not compile:\n{}", unknown.join("\n"));
        }
        let keys = failing.iter().map(|id| self.sites[*id].key());
        self.dropped.extend(keys);
        let mut keys: Vec<&str> = self.dropped.iter().map(String::as_str).collect();
        keys.sort_unstable();
        fs::write(self.file("dropped.txt"), keys.join("\n"))?;
        Ok(())
    }
}

struct Built {
    /// `None` after a success.
    errors: Option<Vec<Value>>,
    programs: Vec<Value>,
}

/// The site that has the error, or those in the smallest place that the error names: a value in it may live too short.
fn failing_sites(files: &BTreeMap<&str, Rewritten>, error: &Value) -> Vec<usize> {
    let spans = error["spans"].as_array().map_or(&[][..], Vec::as_slice);
    let mut places: Vec<(bool, &Rewritten, Range<usize>)> = spans
        .iter()
        .filter_map(|span| {
            let file = files.get(span["file_name"].as_str()?)?;
            Some((span["is_primary"] != true, file, bytes(span)?))
        })
        .collect();
    places.sort_by_key(|(is_secondary, _, _)| *is_secondary);
    let mut around = places
        .iter()
        .filter_map(|(_, file, range)| file.site_at(range));
    if let Some(site) = around.next() {
        return vec![site];
    }
    places.sort_by_key(|(_, _, range)| range.len());
    let mut inside = places.iter().map(|(_, file, range)| file.sites_in(range));
    inside.find(|sites| !sites.is_empty()).unwrap_or_default()
}

fn bytes(span: &Value) -> Option<Range<usize>> {
    let at = |name: &str| usize::try_from(span[name].as_u64()?).ok();
    Some(at("byte_start")?..at("byte_end")?)
}

fn binaries(programs: &[Value]) -> Result<Binaries> {
    let find = |name: &str, kind: &str| {
        let is_wanted =
            |it: &&Value| it["target"]["name"] == name && it["target"]["kind"][0] == kind;
        let found = programs.iter().find(is_wanted);
        let found = found.with_context(|| format!("cargo built no test binary of {name}"))?;
        let path = |value: &Value| value.as_str().map(PathBuf::from);
        let program = path(&found["executable"]).context("a test binary has a path")?;
        let manifest = path(&found["manifest_path"]).context("a package has a manifest")?;
        let folder = manifest.parent().context("a manifest lies in a folder")?;
        Ok::<Binary, anyhow::Error>(Binary {
            program,
            folder: folder.to_owned(),
        })
    };
    Ok(Binaries {
        unit: find("engine", "lib")?,
        engine: find("engine", "test")?,
        scenarios: find("scenarios", "test")?,
    })
}

fn write(file: &Path, content: &[u8]) -> Result<()> {
    if fs::read(file).is_ok_and(|known| known == content) {
        return Ok(());
    }
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(file, content).with_context(|| format!("cannot write {}", file.display()))
}

/// Removes files that are no longer part of the workspace: tests look for files in folders.
fn remove_others(folder: &Path, known: &HashSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, known)?;
        } else if !known.contains(&path) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}
