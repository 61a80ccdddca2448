//! Kernel modules of the guest, in the order in which they can be loaded. It differs between versions of the kernel, so it is
//! read from the modules themselves.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// A module with its content.
pub(super) struct Module {
    pub(super) name: String,
    pub(super) content: Vec<u8>,
}

/// The wanted modules in this directory and all that they depend on, each behind its dependencies.
pub(super) fn load_order(directory: &Path, wanted: &[&str]) -> Result<Vec<Module>> {
    let mut order = Vec::new();
    let mut visited = BTreeSet::new();
    for name in wanted {
        visit(directory, name, &mut visited, &mut order)?;
    }
    Ok(order)
}

fn visit(
    directory: &Path,
    name: &str,
    visited: &mut BTreeSet<String>,
    order: &mut Vec<Module>,
) -> Result<()> {
    if !visited.insert(name.to_owned()) {
        return Ok(());
    }
    let file = directory.join(format!("{name}.ko"));
    let content = fs::read(&file)
        .with_context(|| format!("the guest's kernel has no module {}", file.display()))?;
    for dependency in dependencies(&content) {
        visit(directory, &dependency, visited, order)?;
    }
    order.push(Module {
        name: name.to_owned(),
        content,
    });
    Ok(())
}

/// From the text `depends=a,b` between two zero bytes of the section `.modinfo`.
fn dependencies(module: &[u8]) -> Vec<String> {
    let mut texts = module.split(|byte| *byte == 0);
    let found = texts.find_map(|text| text.strip_prefix(b"depends="));
    let list = String::from_utf8_lossy(found.unwrap_or_default()).into_owned();
    let names = list.split(',').filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_comes_behind_its_dependencies() {
        let directory = tempfile::tempdir().unwrap();
        for (name, depends) in [("net", "ring,bus"), ("bus", "ring"), ("ring", "")] {
            let content = format!("ELF\0license=GPL\0depends={depends}\0name={name}\0");
            fs::write(directory.path().join(format!("{name}.ko")), content).unwrap();
        }
        let names = |wanted: &[&str]| -> Vec<String> {
            let order = load_order(directory.path(), wanted).unwrap();
            order.into_iter().map(|it| it.name).collect()
        };
        assert_eq!(names(&["bus", "net"]), ["ring", "bus", "net"]);
        assert_eq!(names(&["net"]), ["ring", "bus", "net"]);
        let missing = load_order(directory.path(), &["disk"]).err().unwrap();
        assert!(missing.to_string().contains("disk.ko"), "{missing}");
    }
}
