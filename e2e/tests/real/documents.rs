//! The commands of the documentation, run as printed.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use crate::up::Up;

/// One block of a document, with the language it is marked with.
struct Block<'a> {
    language: &'a str,
    text: &'a str,
}

fn blocks(document: &str) -> Vec<Block<'_>> {
    let fenced = document.split("```").skip(1).step_by(2);
    fenced
        .filter_map(|block| block.split_once('\n'))
        .map(|(language, text)| Block { language, text })
        .collect()
}

/// Where a reader would be: `tidepool`, `kubectl` and `cargo run` work, and `up` runs in another terminal. Returns what was
/// printed: of a command that fails, its errors.
fn shell(up: &Up, script: &str, directory: &Path, fails: bool) -> String {
    let prelude = format!(
        "set -e\ntidepool() {{ {} \"$@\"; }}\nkubectl() {{ {} \"$@\"; }}\ncargo() {{ shift 3; tidepool \"$@\"; }}\n",
        up.program().display(),
        up.kubectl_program().display()
    );
    let output = Command::new("sh")
        .arg("-c")
        .arg(prelude + script)
        .current_dir(directory)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", up.home())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    let success = output.status.success();
    assert_eq!(success, !fails, "{script}\n{stdout}\n{stderr}");
    if fails { stderr } else { stdout }
}

/// What a document shows of a command that fails.
const ERROR: &str = "Error from server";

/// What of a line is the same in every run: its first word, or all of it in a table of scores, in JSON and in an error.
fn lasting(line: &str) -> &str {
    match line.starts_with(['|', 'T', '{']) || line.starts_with(ERROR) {
        true => line,
        false => line.split_whitespace().next().unwrap_or_default(),
    }
}

/// The arguments of a block that starts `tidepool up`, which runs in another terminal.
fn up_arguments<'a>(block: &Block<'a>) -> Option<Vec<&'a str>> {
    let starts = ["cargo run --release -- up", "tidepool up"];
    let command = block
        .text
        .strip_suffix('\n')
        .filter(|_| block.language == "sh")?;
    let rest = starts
        .iter()
        .find_map(|start| command.strip_prefix(start))?;
    assert!(!rest.contains('\n'), "it does not end by itself: {command}");
    Some(rest.split_whitespace().collect())
}

/// Runs every `sh` block, in one shell each; what a `text` block behind it shows was printed. A `yaml` block that begins with
/// a name, as `# gpu.yaml`, is a file; the files of the repository are where they are.
fn follow(document: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let document = std::fs::read_to_string(root.join(document)).unwrap();
    let blocks = blocks(&document);
    let directory = tempfile::tempdir().unwrap();
    for name in ["deploy", "docs"] {
        std::os::unix::fs::symlink(root.join(name), directory.path().join(name)).unwrap();
    }
    for block in blocks.iter().filter(|block| block.language == "yaml") {
        let first = block.text.lines().next().unwrap_or_default();
        if let Some(name) = first.strip_prefix("# ") {
            std::fs::write(directory.path().join(name), block.text).unwrap();
        }
    }
    let arguments = blocks.iter().find_map(up_arguments).unwrap_or_default();
    let arguments = arguments.iter().map(|argument| {
        let file = directory.path().join(argument);
        let argument = if file.is_file() {
            file
        } else {
            argument.into()
        };
        argument.display().to_string()
    });
    let arguments: Vec<String> = arguments.collect();
    let up = Up::start(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let (mut printed, mut ran) = (None, 0);
    for (at, block) in blocks.iter().enumerate() {
        match block.language {
            "sh" if up_arguments(block).is_some() => {}
            "sh" => {
                let export = "export KUBECONFIG=~/.cache/tidepool/kubeconfig\n";
                let script = [export, block.text].concat();
                let fails = blocks
                    .get(at + 1)
                    .is_some_and(|next| next.language == "text" && next.text.starts_with(ERROR));
                printed = Some(shell(&up, &script, directory.path(), fails));
                ran += 1;
            }
            "text" => {
                if let Some(printed) = printed.take() {
                    let shown: Vec<&str> = block.text.lines().map(lasting).collect();
                    let lines: Vec<&str> = printed.lines().map(lasting).collect();
                    let is_there = |word: &&&str| !lines.contains(word);
                    let missing: Vec<_> = shown.iter().filter(is_there).collect();
                    assert!(missing.is_empty(), "{missing:?} are not in:\n{printed}");
                }
            }
            _ => {}
        }
    }
    assert!(ran > 0, "there is nothing to follow");
}

#[test]
fn the_first_five_minutes_work() {
    follow("docs/getting-started.md");
}

#[test]
fn the_readme_works() {
    follow("README.md");
}

#[test]
fn gpu_machines_are_kept_for_gpu_work() {
    follow("docs/keep-gpu-machines-for-gpu-work.md");
}

#[test]
fn jobs_run_on_idle_capacity() {
    follow("docs/colocation.md");
}

#[test]
fn reserved_machines_fill_first_and_spot_pods_go_first() {
    follow("docs/resource-policy.md");
}

#[test]
fn pods_of_every_tier_are_admitted() {
    follow("docs/tiers.md");
}

#[test]
fn dedicated_pods_have_numa_zones() {
    follow("docs/dedicated-cores.md");
}
