//! Takes in reviews within a bound on memory. Small and middle reviews have parts of their own, so that they do not wait for large
//! ones.
//!
//! A client can make the API server send 18 MiB for a pod of 3 MiB, because JSON escapes some characters with six bytes. A parsed
//! review takes more memory than its text: up to a hundred times as much for a text of short values. The bounds add up to 256 MiB:
//!
//! | part | MiB |
//! |---|---|
//! | texts of small reviews, up to 32 KiB each | 16 |
//! | parsed small reviews | 32 |
//! | copies of small reviews that threads judge now; this part is not counted | 8 |
//! | texts of middle reviews, up to 1 MiB each | 8 |
//! | parsed middle reviews, and their copies | 24 |
//! | texts of large reviews, which are answered one after the other | 48 |
//! | one parsed large review, and its copies | 120 |
//!
//! A middle review with very many values takes more than the part of parsed middle ones: it takes turns with the large ones. Only few
//! of them may wait for that, because they keep their texts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use futures::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::review::JsonCounts;
use super::unanswered::Unanswered;

/// An update has the object twice: 18 MiB as a client can write it, and 9 MiB as it can be stored.
pub(super) const LARGEST_BODY: usize = 32 << 20;
/// The size up to which a text is parsed without a look at its values.
pub(super) const SMALL_BODY: usize = 32 << 10;
/// Pods with a hundred containers, or with long annotations, are smaller.
const MIDDLE_BODY: usize = MIB;
/// JSON values of one object: each container has about thirty with the defaults of the API server.
pub(super) const MOST_VALUES: usize = 200_000;
/// Bytes that a parsed review takes at most per byte of its text.
const PARSED_FACTOR: usize = 128;
/// Bytes that a JSON value takes beside its text; more for an object, which has room for eleven fields, and for an array.
const VALUE_BYTES: usize = 64;
const OBJECT_BYTES: usize = 650;
const ARRAY_BYTES: usize = 130;

const MIB: usize = 1 << 20;
const SMALL_TEXTS: usize = 16 * MIB;
const SMALL_PARSED: usize = 32 * MIB;
const SMALL_COPIES: usize = 8 * MIB;
const MIDDLE_TEXTS: usize = 8 * MIB;
const MIDDLE_PARSED: usize = 24 * MIB;
const LARGE_TEXTS: usize = 48 * MIB;
const LARGE_PARSED: usize = 120 * MIB;
const _: () = assert!(
    SMALL_TEXTS
        + SMALL_PARSED
        + SMALL_COPIES
        + MIDDLE_TEXTS
        + MIDDLE_PARSED
        + LARGE_TEXTS
        + LARGE_PARSED
        == 256 * MIB
);
/// Middle reviews that wait for the part of large ones. They take half of the texts at most.
const MOST_DENSE: usize = MIDDLE_TEXTS / MIDDLE_BODY / 2;
/// Reviews that wait for a part.
const MOST_WAITING: usize = 1_024;
/// From the head of a review to its last byte: a slow client must not keep its part for long.
const ARRIVES_WITHIN: Duration = Duration::from_secs(10);

/// The memory of reviews.
pub(super) struct Intake {
    small_texts: Arc<Semaphore>,
    middle_texts: Arc<Semaphore>,
    large_texts: Arc<Semaphore>,
    small_parsed: Arc<Semaphore>,
    middle_parsed: Arc<Semaphore>,
    large_parsed: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// Middle reviews that wait for the part of large ones.
    dense: AtomicUsize,
    held: Arc<HeldBytes>,
    pub(super) arrives_within: Duration,
}

/// Bytes that reviews take now, and the most that they took.
#[derive(Debug, Default)]
struct HeldBytes {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// A part of the memory, free again when it is dropped.
pub(super) struct Share {
    _permit: OwnedSemaphorePermit,
    held: Arc<HeldBytes>,
    bytes: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.held.now.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The text of a review.
pub(super) struct ReviewText {
    pub(super) bytes: Vec<u8>,
    _share: Share,
}

/// Which parts a text takes, by its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    Small,
    Middle,
    Large,
}

impl Size {
    fn of(length: usize) -> Self {
        if length <= SMALL_BODY {
            Self::Small
        } else if length <= MIDDLE_BODY {
            Self::Middle
        } else {
            Self::Large
        }
    }
}

impl ReviewText {
    /// Others are parsed on a thread of their own, and their values are counted before.
    pub(super) fn is_small(&self) -> bool {
        Size::of(self.bytes.len()) == Size::Small
    }
}

impl Default for Intake {
    fn default() -> Self {
        let share = |bytes| Arc::new(Semaphore::new(bytes));
        Self {
            small_texts: share(SMALL_TEXTS),
            middle_texts: share(MIDDLE_TEXTS),
            large_texts: share(LARGE_TEXTS),
            small_parsed: share(SMALL_PARSED),
            middle_parsed: share(MIDDLE_PARSED),
            large_parsed: share(LARGE_PARSED),
            waiting: AtomicUsize::new(0),
            dense: AtomicUsize::new(0),
            held: Arc::default(),
            arrives_within: ARRIVES_WITHIN,
        }
    }
}

impl Intake {
    /// Reads a body of this length; none if the client did not say it.
    pub(super) async fn read(
        &self,
        body: Body,
        length: Option<usize>,
    ) -> Result<ReviewText, Unanswered> {
        let most = length.unwrap_or(LARGEST_BODY);
        if most > LARGEST_BODY {
            return Err(Unanswered::TooLarge {
                found: most.to_string(),
                most: LARGEST_BODY,
            });
        }
        let of = match Size::of(most) {
            Size::Small => &self.small_texts,
            Size::Middle => &self.middle_texts,
            Size::Large => &self.large_texts,
        };
        let share = self.take(of, most).await?;
        let limit = self.arrives_within;
        let read = tokio::time::timeout(limit, collect(body, length, most));
        let bytes = read.await.map_err(|_| Unanswered::Slow(limit))??;
        Ok(ReviewText {
            bytes,
            _share: share,
        })
    }

    /// The memory to parse and judge a review.
    pub(super) async fn take_parsed(&self, text: &ReviewText) -> Result<Share, Unanswered> {
        let length = text.bytes.len();
        match Size::of(length) {
            Size::Small => self.take(&self.small_parsed, PARSED_FACTOR * length).await,
            Size::Middle => {
                let bytes = parsed_bytes(&text.bytes);
                if bytes <= MIDDLE_PARSED {
                    return self.take(&self.middle_parsed, bytes).await;
                }
                let _waits = Waiting::begin(&self.dense, MOST_DENSE)?;
                self.take(&self.large_parsed, LARGE_PARSED).await
            }
            Size::Large => self.take(&self.large_parsed, LARGE_PARSED).await,
        }
    }

    async fn take(&self, of: &Arc<Semaphore>, bytes: usize) -> Result<Share, Unanswered> {
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let permit = match of.clone().try_acquire_many_owned(permits) {
            Ok(permit) => permit,
            Err(_) => {
                let _waits = Waiting::begin(&self.waiting, MOST_WAITING)?;
                let permit = of.clone().acquire_many_owned(permits).await;
                permit.map_err(|error| Unanswered::Unable(error.to_string()))?
            }
        };
        let now = self.held.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.held.most.fetch_max(now, Ordering::Relaxed);
        Ok(Share {
            _permit: permit,
            held: self.held.clone(),
            bytes,
        })
    }

    /// Bytes that reviews take now, and the most so far.
    pub(super) fn held(&self) -> (usize, usize) {
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (of(&self.held.now), of(&self.held.most))
    }
}

/// What a parsed review and its copy take.
fn parsed_bytes(text: &[u8]) -> usize {
    let counts = JsonCounts::of(text);
    let values = VALUE_BYTES * counts.values;
    2 * (text.len() + values + OBJECT_BYTES * counts.objects + ARRAY_BYTES * counts.arrays)
}

/// A review that waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize, most: usize) -> Result<Self, Unanswered> {
        let waiting = Self(count);
        match count.fetch_add(1, Ordering::Relaxed) < most {
            true => Ok(waiting),
            false => Err(Unanswered::Overload { most }),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn collect(body: Body, length: Option<usize>, most: usize) -> Result<Vec<u8>, Unanswered> {
    let mut bytes = Vec::with_capacity(length.unwrap_or(0));
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| Unanswered::Closed)?;
        if bytes.len() + piece.len() > most {
            return Err(Unanswered::TooLarge {
                found: format!("more than {most}"),
                most,
            });
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}
