//! `up` on a terminal: it draws a page and restores the terminal.

use std::{
    io::{Read, Write},
    process::{Child, Command, Stdio},
    time::Instant,
};

use crate::PATIENCE;

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

/// It ends with the test, and what runs in it ends with its terminal.
struct Script(Child);

impl Drop for Script {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs in a terminal of this size until Ctrl-C, which is typed once the output contains `wait_for`.
fn in_terminal(size: &str, wait_for: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    let up = format!(
        "stty {size} && exec {} up --port 0",
        env!("CARGO_BIN_EXE_tidepool")
    );
    let mut script = Script(
        Command::new("script")
            .args(["--quiet", "--return", "--command", &up, "/dev/null"])
            .env("HOME", home.path())
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script(1) gives us a terminal"),
    );
    let mut typed = script.0.stdin.take().unwrap();
    let mut shown = script.0.stdout.take().unwrap();
    let (mut text, mut bytes) = (String::new(), [0; 4096]);
    let (begun, mut asked) = (Instant::now(), false);
    loop {
        let count = shown.read(&mut bytes).unwrap();
        if count == 0 {
            break;
        }
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        if !asked && text.contains(wait_for) {
            typed.write_all(b"xyz\x03").unwrap();
            asked = true;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{wait_for} did not appear: {text}"
        );
    }
    let status = script.0.wait().unwrap();
    assert!(status.success(), "{status}: {text}");
    text
}

#[test]
fn up_draws_a_page_and_restores_the_terminal() {
    for (size, wait_for) in [
        ("rows 40 cols 120", "LATEST"),
        ("rows 12 cols 30", "node-002"),
        ("rows 3 cols 10", "cpu:"),
    ] {
        let text = in_terminal(size, wait_for);
        let (before, page) = text.split_once(ENTER).expect("a page of its own");
        let (page, after) = page.rsplit_once(LEAVE).expect("it is left");
        assert!(before.is_empty(), "{size}: {before:?}");
        assert!(page.contains("pods: "), "{size}: {page}");
        assert!(!page.contains("xyz"), "{size}: what is typed is not shown");
        assert!(
            after.trim().starts_with("stopped after "),
            "{size}: {after:?}"
        );
        assert!(!after.contains('\x1b'), "{size}: {after:?}");
    }
}

#[test]
fn a_dumb_terminal_gets_lines() {
    let home = tempfile::tempdir().unwrap();
    let up = format!("{} up --port 0 --for 3s", env!("CARGO_BIN_EXE_tidepool"));
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &up, "/dev/null"])
        .env("HOME", home.path())
        .env("TERM", "dumb")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("placed   demo/"), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
}
