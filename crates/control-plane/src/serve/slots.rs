//! Places for connections: so many without and with authentication, and so many of one peer.
//!
//! No connection is refused. If there is no place for a new one, the least useful connection of the same class is closed:
//! the one that made no progress for longest. So clients that occupy connections cannot keep out health checks, and
//! connections of authenticated clients are not affected at all.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// Connections at the same time. More without authentication survive a burst of others for longer; all together stay
/// below 1,024 file descriptors.
const UNAUTHENTICATED: Limit = Limit {
    all: 512,
    of_one_peer: 384,
};
const AUTHENTICATED: Limit = Limit {
    all: 128,
    of_one_peer: 96,
};
/// From the connection to the end of the TLS handshake.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Without a complete request.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Without a complete request of an authenticated client: Prometheus sends one every minute, or more often.
pub(super) const AUTHENTICATED_IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// In this time a connection may be slow because the machine is. Of those that are not older, the silent ones go first.
const FRESH: Duration = Duration::from_secs(2);

/// The limits of one class of connections.
struct Limit {
    all: usize,
    /// Those of one IP address.
    of_one_peer: usize,
}

/// The connections of a server.
#[derive(Debug, Clone, Default)]
pub(super) struct Slots(Arc<Mutex<SlotTable>>);

#[derive(Debug, Default)]
struct SlotTable {
    next: u64,
    /// In the order of their arrival.
    held: BTreeMap<u64, HeldSlot>,
}

#[derive(Debug)]
struct HeldSlot {
    peer: IpAddr,
    authenticated: bool,
    stage: Stage,
    /// When this stage began.
    since: Instant,
    /// Requests without a complete response.
    requests: usize,
    closed: CancellationToken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing was received.
    Silent,
    Handshake,
    /// Between two requests, or before the end of the first head.
    Idle,
    Busy,
}

impl HeldSlot {
    /// The lowest is closed first.
    fn rank(&self, now: Instant) -> u8 {
        let fresh = now.saturating_duration_since(self.since) < FRESH;
        match (self.stage, fresh) {
            (Stage::Busy, _) => 3,
            (_, false) => 0,
            (Stage::Silent, true) => 1,
            (Stage::Handshake | Stage::Idle, true) => 2,
        }
    }

    fn is_overdue(&self, now: Instant) -> bool {
        let limit = match self.stage {
            Stage::Silent | Stage::Handshake => HANDSHAKE_TIMEOUT,
            Stage::Idle if self.authenticated => AUTHENTICATED_IDLE_TIMEOUT,
            Stage::Idle => IDLE_TIMEOUT,
            // Requests have deadlines of their own.
            Stage::Busy => return false,
        };
        now.saturating_duration_since(self.since) >= limit
    }
}

impl SlotTable {
    fn take(&mut self, peer: IpAddr, now: Instant) -> (u64, CancellationToken) {
        self.make_place(false, peer, now);
        let (id, closed) = (self.next, CancellationToken::new());
        self.next += 1;
        let slot = HeldSlot {
            peer,
            authenticated: false,
            stage: Stage::Silent,
            since: now,
            requests: 0,
            closed: closed.clone(),
        };
        self.held.insert(id, slot);
        (id, closed)
    }

    /// Closes a connection if the class, or the part of this peer, is full.
    fn make_place(&mut self, authenticated: bool, peer: IpAddr, now: Instant) {
        let limit = match authenticated {
            true => AUTHENTICATED,
            false => UNAUTHENTICATED,
        };
        let of_class = || {
            let all = self.held.iter();
            all.filter(move |(_, it)| it.authenticated == authenticated)
        };
        let of_peer = || of_class().filter(move |(_, it)| it.peer == peer);
        let order = |(id, it): &(&u64, &HeldSlot)| (it.rank(now), it.since, **id);
        let last = if of_peer().count() >= limit.of_one_peer {
            of_peer().min_by_key(order)
        } else if of_class().count() >= limit.all {
            of_class().min_by_key(order)
        } else {
            None
        };
        if let Some(id) = last.map(|(id, _)| *id) {
            self.close(id);
        }
    }

    fn close(&mut self, id: u64) {
        if let Some(slot) = self.held.remove(&id) {
            slot.closed.cancel();
        }
    }

    fn enter(&mut self, id: u64, stage: Stage, now: Instant) {
        if let Some(slot) = self.held.get_mut(&id) {
            slot.stage = stage;
            // The handshake counts from the connection.
            if stage != Stage::Handshake {
                slot.since = now;
            }
        }
    }

    fn authenticate(&mut self, id: u64, now: Instant) {
        let known = self.held.get(&id).map(|it| (it.authenticated, it.peer));
        if let Some((false, peer)) = known {
            self.make_place(true, peer, now);
            if let Some(slot) = self.held.get_mut(&id) {
                slot.authenticated = true;
            }
        }
    }

    fn begin_request(&mut self, id: u64, now: Instant) {
        if let Some(slot) = self.held.get_mut(&id) {
            slot.requests += 1;
            (slot.stage, slot.since) = (Stage::Busy, now);
        }
    }

    fn end_request(&mut self, id: u64, now: Instant) {
        if let Some(slot) = self.held.get_mut(&id) {
            slot.requests = slot.requests.saturating_sub(1);
            if slot.requests == 0 {
                (slot.stage, slot.since) = (Stage::Idle, now);
            }
        }
    }

    fn expire(&mut self, now: Instant) {
        let overdue = self.held.iter().filter(|(_, it)| it.is_overdue(now));
        let overdue: Vec<u64> = overdue.map(|(id, _)| *id).collect();
        overdue.into_iter().for_each(|id| self.close(id));
    }
}

impl Slots {
    /// A place for a new connection.
    pub(super) fn take(&self, peer: IpAddr) -> Slot {
        let peer = peer.to_canonical();
        let (id, closed) = self.lock().take(peer, Instant::now());
        Slot(Arc::new(SlotInner {
            slots: self.clone(),
            id,
            closed,
        }))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().held.is_empty()
    }

    /// Closes the connections that are overdue.
    pub(super) fn expire(&self) {
        self.lock().expire(Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, SlotTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one connection, free again after the last clone is dropped. A request has it as an extension.
#[derive(Debug, Clone)]
pub(super) struct Slot(Arc<SlotInner>);

#[derive(Debug)]
struct SlotInner {
    slots: Slots,
    id: u64,
    closed: CancellationToken,
}

impl Slot {
    /// Runs the connection to its end, or until its place is taken from it.
    pub(super) async fn hold(&self, connection: impl Future<Output = ()>) {
        self.0.closed.run_until_cancelled(connection).await;
    }

    pub(super) fn begins_handshake(&self) {
        self.enter(Stage::Handshake);
    }

    pub(super) fn awaits_request(&self) {
        self.enter(Stage::Idle);
    }

    /// The client is authenticated; its connection takes a place of that class.
    pub(super) fn authenticated(&self) {
        self.0.slots.lock().authenticate(self.0.id, Instant::now());
    }

    /// A request began. It ends when the result is dropped.
    pub(super) fn begin_request(&self) -> OpenRequest {
        self.0.slots.lock().begin_request(self.0.id, Instant::now());
        OpenRequest(self.clone())
    }

    fn enter(&self, stage: Stage) {
        self.0.slots.lock().enter(self.0.id, stage, Instant::now());
    }
}

impl Drop for SlotInner {
    fn drop(&mut self) {
        self.slots.lock().held.remove(&self.id);
    }
}

/// A request whose response is not complete.
#[derive(Debug)]
pub(super) struct OpenRequest(Slot);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let inner = &self.0.0;
        inner.slots.lock().end_request(inner.id, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALE: Duration = Duration::from_secs(3);

    fn peer(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    /// A table with so many connections of one peer, in this stage since `at`.
    fn fill(table: &mut SlotTable, count: usize, of: u8, stage: Stage, at: Instant) -> Vec<u64> {
        let ids = (0..count).map(|_| {
            let id = table.take(peer(of), at).0;
            table.enter(id, stage, at);
            id
        });
        ids.collect()
    }

    #[test]
    fn a_peer_takes_only_its_own_places() {
        let (mut table, now) = (SlotTable::default(), Instant::now());
        let others = fill(&mut table, 1, 1, Stage::Idle, now);
        fill(&mut table, 2 * UNAUTHENTICATED.all, 2, Stage::Idle, now);
        assert_eq!(table.held.len(), UNAUTHENTICATED.of_one_peer + 1);
        assert!(table.held.contains_key(&others[0]));
    }

    #[test]
    fn many_peers_take_only_the_places_without_authentication() {
        let (mut table, now) = (SlotTable::default(), Instant::now());
        let known = fill(&mut table, 2, 1, Stage::Idle, now);
        known.iter().for_each(|id| table.authenticate(*id, now));
        for of in 2..=255 {
            fill(&mut table, 3, of, Stage::Silent, now + STALE);
        }
        assert_eq!(table.held.len(), UNAUTHENTICATED.all + known.len());
        assert!(known.iter().all(|id| table.held.contains_key(id)));
    }

    #[test]
    fn the_least_useful_connection_is_closed() {
        let now = Instant::now();
        let before = now.checked_sub(STALE).unwrap();
        let longer = before.checked_sub(STALE).unwrap();
        let soon = now.checked_sub(FRESH / 2).unwrap();
        use Stage::{Busy, Handshake, Idle, Silent};
        for (case, first, second) in [
            ("the oldest handshake", (Handshake, longer), (Idle, before)),
            ("the longest idle", (Idle, longer), (Handshake, before)),
            ("idle before a new one", (Idle, before), (Silent, now)),
            ("a new one that is silent", (Silent, now), (Handshake, soon)),
            ("what just answered", (Handshake, soon), (Idle, now)),
            ("a request in progress is last", (Idle, now), (Busy, longer)),
        ] {
            let mut table = SlotTable::default();
            fill(&mut table, UNAUTHENTICATED.of_one_peer - 2, 1, Busy, now);
            let keep = fill(&mut table, 1, 1, second.0, second.1)[0];
            let close = fill(&mut table, 1, 1, first.0, first.1)[0];
            let new = table.take(peer(1), now).0;
            let has = |id| table.held.contains_key(&id);
            assert!(has(keep) && !has(close) && has(new), "{case}");
        }
    }

    #[test]
    fn connections_expire() {
        let begun = Instant::now();
        for (case, stage, authenticated, limit) in [
            ("silent", Stage::Silent, false, HANDSHAKE_TIMEOUT),
            ("handshake", Stage::Handshake, false, HANDSHAKE_TIMEOUT),
            ("idle", Stage::Idle, false, IDLE_TIMEOUT),
            ("idle user", Stage::Idle, true, AUTHENTICATED_IDLE_TIMEOUT),
        ] {
            let mut table = SlotTable::default();
            let id = fill(&mut table, 1, 1, stage, begun)[0];
            if authenticated {
                table.authenticate(id, begun);
            }
            table.expire(begun + limit - Duration::from_millis(1));
            assert_eq!(table.held.len(), 1, "{case}");
            table.expire(begun + limit);
            assert_eq!(table.held.len(), 0, "{case}");
        }
    }

    #[tokio::test]
    async fn a_closed_connection_ends_and_a_request_keeps_it_open() {
        let slots = Slots::default();
        let slot = slots.take(peer(1));
        let request = slot.begin_request();
        slots
            .lock()
            .expire(Instant::now() + 2 * AUTHENTICATED_IDLE_TIMEOUT);
        assert!(!slots.is_empty());
        drop(request);
        slots
            .lock()
            .expire(Instant::now() + 2 * AUTHENTICATED_IDLE_TIMEOUT);
        assert!(slots.is_empty());
        slot.hold(std::future::pending()).await;
    }
}
