//! Selects one of the mutants that are compiled into this copy of the engine, by the environment: `cargo xtask mutants` adds this
//! module to the copy. It is not compiled anywhere else.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Instant;

enum Mode {
    Original,
    Mutant(u32),
    /// Nothing is changed; each thread adds a line to this file: its name, its time in microseconds, and the mutants it reaches.
    Record(PathBuf),
}

fn mode() -> &'static Mode {
    static MODE: OnceLock<Mode> = OnceLock::new();
    MODE.get_or_init(
        || match (std::env::var("MUTANT"), std::env::var_os("MUTANT_RECORD")) {
            (Ok(id), _) => Mode::Mutant(id.parse().unwrap()),
            (_, Some(file)) => Mode::Record(file.into()),
            _ => Mode::Original,
        },
    )
}

/// Whether this mutant is the selected one.
pub fn is(id: u32) -> bool {
    match mode() {
        Mode::Original => false,
        Mode::Mutant(selected) => *selected == id,
        Mode::Record(file) => {
            // It fails while the thread ends.
            let _ = REACHED.try_with(|reached| reached.borrow_mut().add(id, file));
            false
        }
    }
}

thread_local! {
    static REACHED: RefCell<Reached> = RefCell::new(Reached::default());
}

#[derive(Default)]
struct Reached {
    start: Option<(String, PathBuf, Instant)>,
    ids: Vec<bool>,
}

impl Reached {
    fn add(&mut self, id: u32, file: &Path) {
        self.start.get_or_insert_with(|| {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            (name, file.to_owned(), Instant::now())
        });
        let index = id as usize;
        if self.ids.len() <= index {
            self.ids.resize(index + 1, false);
        }
        self.ids[index] = true;
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        let Some((name, file, start)) = self.start.take() else {
            return;
        };
        let mut line = format!("{name}\t{}\t", start.elapsed().as_micros());
        for (id, _) in self
            .ids
            .iter()
            .enumerate()
            .filter(|(_, is_reached)| **is_reached)
        {
            write!(line, "{id} ").unwrap();
        }
        line.push('\n');
        let file = OpenOptions::new().create(true).append(true).open(file);
        file.unwrap().write_all(line.as_bytes()).unwrap();
    }
}
