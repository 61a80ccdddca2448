//! Keys that are typed while the page is shown.

use std::{fs::File, io::Read};

use tokio::sync::mpsc::{self, Receiver};

/// Reads that may wait for the page.
const MAX_READS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Up,
    Down,
    PageUp,
    PageDown,
    Top,
    Bottom,
}

/// The keys in what is typed; others are ignored. Without a terminal to read from there are none.
pub(super) struct Keys(Receiver<Vec<Key>>);

impl Keys {
    /// Reads on a thread of its own, which ends with the process: a read of a terminal cannot be cancelled.
    pub(super) fn open() -> Self {
        let (send, receive) = mpsc::channel(MAX_READS);
        if let Ok(mut terminal) = File::open("/dev/tty") {
            std::thread::spawn(move || {
                let mut bytes = [0; 256];
                while let Ok(count @ 1..) = terminal.read(&mut bytes)
                    && send.blocking_send(parse(&bytes[..count])).is_ok()
                {}
            });
        }
        Self(receive)
    }

    /// The next keys. Never returns without a terminal, or once it is closed.
    pub(super) async fn next(&mut self) -> Vec<Key> {
        match self.0.recv().await {
            Some(keys) => keys,
            None => std::future::pending().await,
        }
    }
}

/// The keys in the bytes that a terminal sends.
fn parse(mut bytes: &[u8]) -> Vec<Key> {
    const KEYS: [(&[u8], Key); 23] = [
        (b"q", Key::Quit),
        (b"Q", Key::Quit),
        (b"k", Key::Up),
        (b"j", Key::Down),
        (b"b", Key::PageUp),
        (b" ", Key::PageDown),
        (b"g", Key::Top),
        (b"G", Key::Bottom),
        // The cursor keys, in both modes of a terminal.
        (b"\x1b[A", Key::Up),
        (b"\x1bOA", Key::Up),
        (b"\x1b[B", Key::Down),
        (b"\x1bOB", Key::Down),
        (b"\x1b[5~", Key::PageUp),
        (b"\x1b[6~", Key::PageDown),
        (b"\x1b[H", Key::Top),
        (b"\x1bOH", Key::Top),
        (b"\x1b[1~", Key::Top),
        (b"\x1b[7~", Key::Top),
        (b"\x1b[F", Key::Bottom),
        (b"\x1bOF", Key::Bottom),
        (b"\x1b[4~", Key::Bottom),
        (b"\x1b[8~", Key::Bottom),
        (b"\r", Key::Down),
    ];
    let mut keys = Vec::new();
    while let Some((_, rest)) = bytes.split_first() {
        let known = KEYS.iter().find(|(code, _)| bytes.starts_with(code));
        bytes = match known {
            Some((code, key)) => {
                keys.push(*key);
                &bytes[code.len()..]
            }
            None if bytes.starts_with(b"\x1b[") => after_sequence(&bytes[2..]),
            None => rest,
        };
    }
    keys
}

/// What follows an escape sequence: it ends with a letter or `~`.
fn after_sequence(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| (0x40..=0x7e).contains(byte));
    &bytes[end.map_or(bytes.len(), |end| end + 1)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_in_what_is_typed() {
        for (typed, want) in [
            ("", vec![]),
            ("xyz", vec![]),
            ("q", vec![Key::Quit]),
            ("jk", vec![Key::Down, Key::Up]),
            ("\x1b[B\x1bOA", vec![Key::Down, Key::Up]),
            (
                "\x1b[6~ x\x1b[5~",
                vec![Key::PageDown, Key::PageDown, Key::PageUp],
            ),
            // Ctrl-Right and a function key contain letters that are no keys.
            ("\x1b[1;5C\x1b[15~g", vec![Key::Top]),
            ("\x1b[", vec![]),
            ("\x1b", vec![]),
        ] {
            assert_eq!(parse(typed.as_bytes()), want, "{typed:?}");
        }
    }
}
