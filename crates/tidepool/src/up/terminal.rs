//! Draws pages on the terminal, and restores it afterwards.

use std::io::{self, IsTerminal, Write};

use rustix::termios::{self, LocalModes, OptionalActions, SpecialCodeIndex, Termios};

use super::screen::{Look, Row, Size};

/// The alternate screen, no cursor, no line wrap.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// Synchronised output: the page appears at once. Other terminals ignore it.
const BEGIN: &str = "\x1b[?2026h\x1b[H";
const END: &str = "\x1b[?2026l";
const CLEAR_LINE: &str = "\x1b[2K";
const CLEAR_BELOW: &str = "\r\n\x1b[J";
const HEADING: &str = "\x1b[1m";
const FAINT: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

pub(super) struct Terminal {
    before: Termios,
    styled: bool,
}

impl Terminal {
    /// None if stdout is no terminal, if this process is in the background, or if the terminal cannot move its cursor.
    pub(super) fn open() -> Option<Self> {
        let stdout = io::stdout();
        let can_draw = std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        if !stdout.is_terminal() || !can_draw {
            return None;
        }
        // The kernel stops a background process that changes the terminal.
        if termios::tcgetpgrp(&stdout).ok()? != rustix::process::getpgrp() {
            return None;
        }
        let before = termios::tcgetattr(&stdout).ok()?;
        let mut now = before.clone();
        // Typed characters would appear on the page, and Ctrl-Z would leave the page behind. Keys count without Enter.
        now.local_modes
            .remove(LocalModes::ECHO | LocalModes::ICANON);
        now.special_codes[SpecialCodeIndex::VSUSP] = 0;
        now.special_codes[SpecialCodeIndex::VMIN] = 1;
        now.special_codes[SpecialCodeIndex::VTIME] = 0;
        termios::tcsetattr(&stdout, OptionalActions::Now, &now).ok()?;
        let terminal = Self {
            before,
            styled: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        };
        put(ENTER).ok()?;
        Some(terminal)
    }

    /// None once the terminal is closed.
    pub(super) fn size(&self) -> Option<Size> {
        let size = termios::tcgetwinsize(io::stdout()).ok()?;
        // A terminal that does not know its size reports 0.
        let or = |found: u16, usual: usize| match found {
            0 => usual,
            found => found.into(),
        };
        Some(Size {
            columns: or(size.ws_col, 80),
            rows: or(size.ws_row, 24),
        })
    }

    pub(super) fn draw(&self, lines: &[Row], size: Size) -> io::Result<()> {
        let mut page = String::from(BEGIN);
        for (number, line) in lines.iter().enumerate() {
            if number > 0 {
                page.push_str("\r\n");
            }
            let look = match line.look {
                Look::Heading if self.styled => HEADING,
                Look::Faint if self.styled => FAINT,
                _ => "",
            };
            // Cleared first: after a full line the cursor is still on its last character.
            page.extend([CLEAR_LINE, look, &line.text]);
            if !look.is_empty() {
                page.push_str(RESET);
            }
        }
        if lines.len() < size.rows {
            page.push_str(CLEAR_BELOW);
        }
        page.push_str(END);
        put(&page)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // This fails only if the terminal is closed.
        let _ = put(LEAVE);
        let _ = termios::tcsetattr(io::stdout(), OptionalActions::Now, &self.before);
    }
}

fn put(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
