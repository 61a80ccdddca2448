//! The write queue: binds first, then patches of pod status, then events, then repeated patches.
//!
//! A repeated patch only gives a pod that is known to be unschedulable another message. There are at most
//! [`REPEATS_PER_SECOND`] of them, whatever the number of pods; each writes the latest message.
//!
//! A patch or event that has waited for ten seconds gets a share of the requests, which grows until at thirty seconds it
//! goes before binds. No I/O here; time is an argument.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::model::{Name, Pod};
use engine::scheduling::scheduler::Annotations;
use indexmap::IndexMap;

use super::budget::WriteBudget;
use super::requests::Call;

/// Requests at a time while the server is not overloaded.
const MAX_REQUESTS: usize = 64;
const MIN_REQUESTS: usize = 4;
/// Events at a time: enough to share wake-ups, and fewer than all requests, so that a bind can start.
const MAX_EVENTS: usize = 48;
/// Events that may wait; beyond them the oldest are dropped.
const MAX_WAITING_EVENTS: usize = 20_000;
/// Patches that only change the message of a condition.
const REPEATS_PER_SECOND: u32 = 40;
/// From this age on, patches and events get a share of the requests before binds.
const AGE: Duration = Duration::from_secs(10);
/// At this age they go first.
const OLD: Duration = Duration::from_secs(30);
/// Successful binds until the limit is raised by one.
const RELAX_AFTER: u32 = 32;
/// How often the limit may fall.
const THROTTLE_EVERY: Duration = Duration::from_secs(1);
/// Binds that the recent and the usual time of a bind are averaged over.
const LATELY: f64 = 32.0;
const USUALLY: f64 = 1_000.0;
/// A server that answers within this time is not overloaded.
const QUICK: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) enum Write {
    Bind(BindRequest),
    Patch { pod: Arc<Pod>, call: Call },
    Event(Call),
}

/// A pod to bind.
#[derive(Debug)]
pub(crate) struct BindRequest {
    pub(crate) pod: Arc<Pod>,
    pub(crate) node: Name,
    pub(crate) annotations: Annotations,
}

#[derive(Debug)]
pub(crate) struct WriteQueue {
    binds: VecDeque<BindRequest>,
    /// By uid: a newer patch of a pod takes the place of the older.
    patches: HashMap<Name, (Arc<Pod>, Call)>,
    /// Uids of the patches, and since when they wait.
    patch_order: VecDeque<(Instant, Name)>,
    events: VecDeque<(Instant, Call)>,
    /// By uid, in the order in which they came: the latest of a pod in the place of the first.
    repeats: IndexMap<Name, (Arc<Pod>, Call)>,
    repeat_budget: WriteBudget,
    in_flight: InFlight,
    limit: usize,
    relaxed: u32,
    throttled: Option<Instant>,
    /// The duration of binds in seconds: recent and long-term average.
    times: Option<(f64, f64)>,
    /// Requests that are due to patches and events, in thousandths.
    credit: u32,
}

#[derive(Debug, Default)]
struct InFlight {
    binds: usize,
    patches: usize,
    events: usize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum WriteKind {
    Bind,
    Patch,
    Event,
}

impl WriteQueue {
    pub(crate) fn new() -> Self {
        Self {
            binds: VecDeque::new(),
            patches: HashMap::new(),
            patch_order: VecDeque::new(),
            events: VecDeque::new(),
            repeats: IndexMap::new(),
            repeat_budget: WriteBudget::per_second(REPEATS_PER_SECOND),
            in_flight: InFlight::default(),
            limit: MAX_REQUESTS,
            relaxed: 0,
            throttled: None,
            times: None,
            credit: 0,
        }
    }

    pub(crate) fn bind(&mut self, request: BindRequest) {
        self.binds.push_back(request);
    }

    /// Returns true if a repeated patch of the pod will not be sent.
    pub(crate) fn patch(&mut self, pod: Arc<Pod>, call: Call, now: Instant) -> bool {
        let uid = pod.uid.clone();
        let replaced = self.repeats.shift_remove(&uid).is_some();
        if self.patches.insert(uid.clone(), (pod, call)).is_none() {
            self.patch_order.push_back((now, uid));
        }
        replaced
    }

    /// A patch that only changes the message of the pod's condition.
    pub(crate) fn patch_again(&mut self, pod: Arc<Pod>, call: Call) {
        match self.patches.get_mut(&pod.uid) {
            Some(waiting) => *waiting = (pod, call),
            None => drop(self.repeats.insert(pod.uid.clone(), (pod, call))),
        }
    }

    /// The pod needs no further patch.
    pub(crate) fn forget(&mut self, uid: &str) {
        self.repeats.swap_remove(uid);
    }

    /// Returns false if the oldest event was dropped.
    pub(crate) fn event(&mut self, call: Call, now: Instant) -> bool {
        self.events.push_back((now, call));
        let fits = self.events.len() <= MAX_WAITING_EVENTS;
        if !fits {
            self.events.pop_front();
        }
        fits
    }

    /// Binds that wait.
    pub(crate) fn waiting_binds(&self) -> usize {
        self.binds.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.binds.is_empty()
            && self.patches.is_empty()
            && self.events.is_empty()
            && self.busy() == 0
    }

    fn busy(&self) -> usize {
        self.in_flight.binds + self.in_flight.patches + self.in_flight.events
    }

    /// The next request to send, if one may be sent now.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Write> {
        if self.busy() >= self.limit {
            return None;
        }
        if self.binds.is_empty() || self.is_due(now) {
            if let Some((pod, call)) = self.first_patch() {
                self.in_flight.patches += 1;
                return Some(Write::Patch { pod, call });
            }
            if self.in_flight.events < MAX_EVENTS
                && let Some((_, call)) = self.events.pop_front()
            {
                self.in_flight.events += 1;
                return Some(Write::Event(call));
            }
            if self.binds.is_empty() {
                return self.next_repeat(now);
            }
        }
        let request = self.binds.pop_front()?;
        self.in_flight.binds += 1;
        Some(Write::Bind(request))
    }

    fn next_repeat(&mut self, now: Instant) -> Option<Write> {
        if self.repeats.is_empty() || !self.repeat_budget.take(now) {
            return None;
        }
        let (_, (pod, call)) = self.repeats.shift_remove_index(0)?;
        self.in_flight.patches += 1;
        Some(Write::Patch { pod, call })
    }

    fn first_patch(&mut self) -> Option<(Arc<Pod>, Call)> {
        let (_, uid) = self.patch_order.pop_front()?;
        self.patches.remove(&uid)
    }

    /// Whether a patch or event goes before the next bind.
    fn is_due(&mut self, now: Instant) -> bool {
        let patch = self.patch_order.front().map(|(since, _)| *since);
        let event = self.events.front().map(|(since, _)| *since);
        let Some(since) = patch.into_iter().chain(event).min() else {
            return false;
        };
        let age = now.saturating_duration_since(since);
        self.credit += share(age);
        if self.credit >= 1_000 {
            self.credit -= 1_000;
            return true;
        }
        false
    }

    pub(crate) fn done(&mut self, kind: WriteKind) {
        match kind {
            WriteKind::Bind => self.in_flight.binds -= 1,
            WriteKind::Patch => self.in_flight.patches -= 1,
            WriteKind::Event => self.in_flight.events -= 1,
        }
    }

    /// A bind succeeded.
    pub(crate) fn relax(&mut self) {
        self.relaxed += 1;
        if self.relaxed >= RELAX_AFTER {
            self.relaxed = 0;
            self.limit = (self.limit + 1).min(MAX_REQUESTS);
        }
    }

    /// Records the duration of a bind. Twice the usual duration means that the server is overloaded.
    pub(crate) fn took(&mut self, time: Duration, now: Instant) {
        let time = time.as_secs_f64();
        let (lately, usually) = self.times.unwrap_or((time, time));
        let lately = lately + (time - lately) / LATELY;
        let usually = usually + (time - usually) / USUALLY;
        self.times = Some((lately, usually));
        if lately > 2.0 * usually && lately > QUICK.as_secs_f64() {
            self.throttle(now);
        }
    }

    /// The server is overloaded: halves the limit.
    pub(crate) fn throttle(&mut self, now: Instant) {
        let lately = |at: Instant| now.saturating_duration_since(at) < THROTTLE_EVERY;
        if !self.throttled.is_some_and(lately) {
            self.throttled = Some(now);
            self.relaxed = 0;
            self.limit = (self.limit / 2).max(MIN_REQUESTS);
        }
    }
}

/// The share of requests, in thousandths, of a patch or event of this age.
fn share(age: Duration) -> u32 {
    let over = age.saturating_sub(AGE).min(OLD - AGE);
    let thousandths = over.as_millis() * 1_000 / (OLD - AGE).as_millis();
    u32::try_from(thousandths).unwrap_or(1_000)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn call() -> Call {
        Call::new(Method::POST, "/".into(), "", &())
    }

    fn request() -> BindRequest {
        BindRequest {
            pod: Arc::default(),
            node: "n".into(),
            annotations: Vec::new(),
        }
    }

    fn queue(binds: usize) -> WriteQueue {
        let mut queue = WriteQueue::new();
        for _ in 0..binds {
            queue.bind(request());
        }
        queue
    }

    fn kind(write: &Write) -> WriteKind {
        match write {
            Write::Bind(_) => WriteKind::Bind,
            Write::Patch { .. } => WriteKind::Patch,
            Write::Event(_) => WriteKind::Event,
        }
    }

    /// Takes jobs one at a time and counts binds and others.
    fn take(queue: &mut WriteQueue, count: usize, now: Instant) -> (usize, usize) {
        let mut binds = 0;
        for _ in 0..count {
            let write = queue.next(now).unwrap();
            binds += usize::from(matches!(write, Write::Bind(_)));
            queue.done(kind(&write));
        }
        (binds, count - binds)
    }

    #[test]
    fn the_share_grows_with_age() {
        let now = Instant::now();
        for (age, want) in [
            (0, (100, 0)),
            (10, (100, 0)),
            (20, (50, 50)),
            (30, (0, 100)),
            (99, (0, 100)),
        ] {
            let mut queue = queue(200);
            for _ in 0..200 {
                queue.event(call(), now);
            }
            let later = now + Duration::from_secs(age);
            assert_eq!(take(&mut queue, 100, later), want, "at {age} s");
        }
    }

    #[test]
    fn an_endless_stream_of_binds_holds_no_event_for_longer_than_thirty_seconds() {
        let begun = Instant::now();
        let mut queue = queue(0);
        let mut waited = Duration::ZERO;
        // 100 turns a second; 50 binds and 30 events come in each second.
        for tick in 0..12_000_u64 {
            let now = begun + Duration::from_millis(10 * tick);
            if tick % 2 == 0 {
                queue.bind(request());
            }
            if tick % 3 == 0 {
                queue.event(call(), now);
            }
            let oldest = queue.events.front().map(|(since, _)| now - *since);
            waited = waited.max(oldest.unwrap_or_default());
            if let Some(write) = queue.next(now) {
                queue.done(kind(&write));
            }
        }
        assert!(waited <= OLD, "{waited:?}");
        assert!(queue.waiting_binds() < 200, "{}", queue.waiting_binds());
    }

    #[test]
    fn a_newer_patch_takes_the_place_of_the_older() {
        let now = Instant::now();
        let mut queue = queue(0);
        let pod = Arc::new(Pod {
            uid: "u".into(),
            ..Pod::default()
        });
        queue.patch(pod.clone(), call(), now);
        let newer = Call {
            path: "/newer".into(),
            ..call()
        };
        queue.patch(pod, newer, now);
        let Some(Write::Patch { call, .. }) = queue.next(now) else {
            panic!("a patch waits");
        };
        assert_eq!(call.path, "/newer");
        assert!(queue.next(now).is_none());
    }

    #[test]
    fn repeated_patches_are_few_and_the_latest_of_a_pod_counts() {
        let begun = Instant::now();
        let mut queue = queue(0);
        let pod = |number: usize| {
            Arc::new(Pod {
                uid: number.to_string().into(),
                ..Pod::default()
            })
        };
        let newer = || Call {
            path: "/newer".into(),
            ..call()
        };
        for number in 0..1_000 {
            queue.patch_again(pod(number), call());
            queue.patch_again(pod(number), newer());
        }
        // A pod that is gone, and one with a patch of more than its message.
        queue.forget("998");
        assert!(queue.patch(pod(999), call(), begun), "it replaces");
        let mut written = 0;
        for second in 0..60 {
            let now = begun + Duration::from_secs(second);
            let mut this_second = 0;
            while let Some(write) = queue.next(now) {
                queue.done(kind(&write));
                this_second += 1;
                let Write::Patch { pod, call } = write else {
                    panic!("only patches wait");
                };
                let is_newer = call.path == "/newer";
                assert_eq!(is_newer, *pod.uid != *"999", "{}", pod.uid);
            }
            assert!(this_second <= REPEATS_PER_SECOND + 1, "{this_second}");
            written += this_second;
        }
        assert_eq!(written, 999);
    }

    #[test]
    fn the_oldest_events_are_dropped() {
        let now = Instant::now();
        let mut queue = queue(0);
        let dropped = (0..MAX_WAITING_EVENTS + 3).filter(|_| !queue.event(call(), now));
        assert_eq!(dropped.count(), 3);
    }

    #[test]
    fn the_limit_falls_when_binds_take_twice_as_long() {
        let in_flight = |queue: &mut WriteQueue| {
            let now = Instant::now();
            std::iter::from_fn(|| queue.next(now)).count()
        };
        for (case, usual, then, want) in [
            ("no change", 150, 150, MAX_REQUESTS),
            ("slower, not twice", 150, 250, MAX_REQUESTS),
            ("twice as slow, and still quick", 20, 60, MAX_REQUESTS),
            ("more than twice", 150, 400, MAX_REQUESTS / 2),
        ] {
            let mut queue = queue(200);
            let now = Instant::now();
            (0..1_000).for_each(|_| queue.took(Duration::from_millis(usual), now));
            (0..100).for_each(|_| queue.took(Duration::from_millis(then), now));
            assert_eq!(in_flight(&mut queue), want, "{case}");
        }
    }

    #[test]
    fn the_limit_falls_under_pressure_and_recovers() {
        let now = Instant::now();
        let mut queue = queue(200);
        let in_flight = |queue: &mut WriteQueue| std::iter::from_fn(|| queue.next(now)).count();
        queue.throttle(now);
        queue.throttle(now);
        assert_eq!(in_flight(&mut queue), MAX_REQUESTS / 2);
        (0..RELAX_AFTER).for_each(|_| queue.relax());
        assert_eq!(in_flight(&mut queue), 1);
    }
}
