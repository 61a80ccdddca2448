//! The page while it is scrolled: everything that it can show, a window of it at a time.

use std::time::Duration;

use super::{
    board::Board,
    keys::Key,
    screen::{self, Frame, Look, Page, Row, Size},
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Scroll {
    /// The first shown line of the list; `None` for the page that fits into the window.
    first: Option<usize>,
    /// Lines of the list that fit between the sums and the last line.
    room: usize,
}

impl Scroll {
    /// Moves by a key. [`draw`](Self::draw) keeps it within the list.
    pub(super) fn press(&mut self, key: Key) {
        let page = self.room.max(1);
        self.first = match (key, self.first) {
            (Key::Quit, at) => at,
            (Key::Top, _) | (Key::Up | Key::PageUp, None | Some(0)) => None,
            (Key::Bottom, _) => Some(usize::MAX),
            // The list begins at its top.
            (Key::Down | Key::PageDown, None) => Some(0),
            (Key::Down, Some(at)) => Some(at.saturating_add(1)),
            (Key::PageDown, Some(at)) => Some(at.saturating_add(page)),
            (Key::Up, Some(at)) => Some(at - 1),
            (Key::PageUp, Some(at)) => Some(at.saturating_sub(page)),
        };
    }

    /// The lines of a window; `None` if the page is not scrolled.
    pub(super) fn draw(
        &mut self,
        board: &Board,
        frame: &Frame,
        uptime: Duration,
        size: Size,
    ) -> Option<Vec<Row>> {
        let at = self.first?;
        let mut list = Page::new(Size {
            rows: usize::MAX,
            ..size
        });
        let (nodes, waiting) = (board.nodes(), board.waiting());
        screen::add_nodes(&mut list, &nodes, usize::MAX);
        screen::add_waiting(&mut list, &waiting, usize::MAX);
        screen::add_changes(&mut list, board, usize::MAX);
        let mut page = Page::new(size);
        screen::add_sums(&mut page, board, frame, &nodes, uptime);
        let last_line = 1;
        let (all, room) = (list.lines.len(), page.left().saturating_sub(last_line));
        let first = at.min(all.saturating_sub(room));
        *self = Self {
            first: Some(first),
            room,
        };
        let shown = list.lines.into_iter().skip(first).take(room);
        page.lines.extend(shown);
        let last = all.min(first.saturating_add(room));
        let place = format!("lines {} to {last} of {all}", first + 1);
        page.add(
            Look::Faint,
            format!("{place}; g returns, q stops everything"),
        );
        Some(page.lines)
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;

    use super::*;
    use crate::up::screen::tests::{board, frame, lending_node};

    const SIZE: Size = Size {
        columns: 80,
        rows: 14,
    };

    fn text(scroll: &mut Scroll) -> Option<String> {
        text_of(&board(40, 9), scroll)
    }

    fn text_of(board: &Board, scroll: &mut Scroll) -> Option<String> {
        let rows = scroll.draw(board, &frame(), Duration::ZERO, SIZE)?;
        assert!(rows.len() <= SIZE.rows);
        let lines: Vec<String> = rows.into_iter().map(|row| row.text).collect();
        Some(lines.join("\n"))
    }

    #[test]
    fn every_line_can_be_reached() {
        let mut scroll = Scroll::default();
        assert_eq!(text(&mut scroll), None);
        // 1 + 1 + 40 lines of nodes, 2 + 3 of waiting pods, 2 + 9 of changes.
        for (keys, in_it, not_in_it, place) in [
            (
                vec![Key::Down],
                "node-001",
                "node-020",
                "lines 1 to 10 of 58",
            ),
            (
                vec![Key::Down],
                "node-002",
                "node-020",
                "lines 2 to 11 of 58",
            ),
            (
                vec![Key::PageDown],
                "node-012",
                "node-003",
                "lines 12 to 21 of 58",
            ),
            (
                vec![Key::PageDown; 4],
                "placed",
                "node-030",
                "lines 49 to 58 of 58",
            ),
            (
                vec![Key::PageUp],
                "node-040",
                "LATEST",
                "lines 39 to 48 of 58",
            ),
            (
                vec![Key::Bottom],
                "placed",
                "WAITING",
                "lines 49 to 58 of 58",
            ),
            (vec![Key::Up], "LATEST", "WAITING", "lines 48 to 57 of 58"),
        ] {
            keys.iter().for_each(|key| scroll.press(*key));
            let text = text(&mut scroll).unwrap();
            assert!(text.contains("pods: "), "the sums stay: {text}");
            assert!(text.contains(in_it), "{in_it} is not in {text}");
            assert!(!text.contains(not_in_it), "{not_in_it} is in {text}");
            let last = text.lines().last().unwrap();
            assert!(last.starts_with(place), "{place}: {last}");
        }
        scroll.press(Key::Top);
        assert_eq!(text(&mut scroll), None);
    }

    #[test]
    fn the_top_of_the_list_leads_back_to_the_page() {
        let mut scroll = Scroll::default();
        for (key, scrolled) in [
            (Key::Up, false),
            (Key::PageDown, true),
            (Key::Up, false),
            (Key::Bottom, true),
            (Key::Quit, true),
        ] {
            scroll.press(key);
            assert_eq!(text(&mut scroll).is_some(), scrolled, "{key:?}");
        }
    }

    #[test]
    fn a_line_about_tiers_leaves_room_for_the_last_line() {
        let mut board = board(40, 9);
        board.node_event(Event::Apply(lending_node()));
        let mut scroll = Scroll::default();
        scroll.press(Key::Down);
        let text = text_of(&board, &mut scroll).unwrap();
        assert!(text.contains("lent: "), "{text}");
        assert!(text.contains("\nlines 1 to 9 of 58"), "{text}");
    }
}
