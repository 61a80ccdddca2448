//! Schedules of CronJobs: five fields (minute, hour, day of month, month, day of week), or `@daily` and the like.

use std::time::Duration;

use jiff::{Timestamp, civil::Date, tz::TimeZone};

/// No schedule is later: 29 February may be eight years away.
const LONGEST_SEARCH: i32 = 366 * 9;

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Schedule {
    Calendar(Calendar),
    Every(Duration),
}

/// A bit for each minute, hour, day or month.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Calendar {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Days of the month and of the week are both restricted: one of them is enough.
    either_day: bool,
}

struct Field {
    name: &'static str,
    first: u32,
    last: u32,
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field {
        name: "minute",
        first: 0,
        last: 59,
        names: &[],
    },
    Field {
        name: "hour",
        first: 0,
        last: 23,
        names: &[],
    },
    Field {
        name: "day of month",
        first: 1,
        last: 31,
        names: &[],
    },
    Field {
        name: "month",
        first: 1,
        last: 12,
        names: &MONTHS,
    },
    Field {
        name: "day of week",
        first: 0,
        last: 6,
        names: &DAYS,
    },
];

impl Schedule {
    /// Parses a schedule, or returns what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let fields = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            _ => text,
        };
        if let Some(every) = text.strip_prefix("@every ") {
            let every = humantime::parse_duration(every.trim())
                .map_err(|error| format!("{every:?} is not a duration: {error}"))?;
            return Ok(Self::Every(Duration::from_secs(every.as_secs().max(1))));
        }
        let parts: Vec<&str> = fields.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = parts[..] else {
            let count = parts.len();
            return Err(format!(
                "expected exactly 5 fields, found {count}: use \"minute hour day month weekday\""
            ));
        };
        let is_any = |text: &str| text.starts_with(['*', '?']) && !text.contains('/');
        Ok(Self::Calendar(Calendar {
            minutes: FIELDS[0].parse(minutes)?,
            hours: FIELDS[1].parse(hours)?,
            days: FIELDS[2].parse(days)?,
            months: FIELDS[3].parse(months)?,
            weekdays: FIELDS[4].parse(weekdays)?,
            either_day: !is_any(days) && !is_any(weekdays),
        }))
    }

    /// The first time after `time`, if there is one.
    pub(super) fn next(&self, time: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Every(every) => time.checked_add(*every).ok(),
            Self::Calendar(calendar) => calendar.next(time, zone),
        }
    }

    /// The last time after `earliest` and not after `now`.
    pub(super) fn latest(
        &self,
        earliest: Timestamp,
        now: Timestamp,
        zone: &TimeZone,
    ) -> Option<Timestamp> {
        if let Self::Every(every) = self {
            let passed = Duration::try_from(now.duration_since(earliest)).ok()?;
            let count = u32::try_from(passed.as_secs() / every.as_secs()).unwrap_or(u32::MAX);
            return (count > 0).then(|| earliest.checked_add(*every * count).ok())?;
        }
        // The shortest period that contains a time, so that a schedule by the minute is not searched for years.
        const HOUR: i64 = 3600;
        for hours in [1, 24, 24 * 32, 24 * 366, 24 * 366 * 9] {
            let since = now.checked_sub(Duration::from_secs(
                u64::try_from(hours * HOUR).unwrap_or(0),
            ));
            let since = since.unwrap_or(Timestamp::MIN).max(earliest);
            let mut last = None;
            let mut next = self.next(since, zone);
            while let Some(time) = next.filter(|time| *time <= now) {
                last = Some(time);
                next = self.next(time, zone);
            }
            if last.is_some() || since == earliest {
                return last;
            }
        }
        None
    }
}

impl Calendar {
    fn next(&self, time: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let start = time.to_zoned(zone.clone());
        let mut date = start.date();
        for _ in 0..LONGEST_SEARCH {
            if self.has_day(date) {
                for hour in bits(self.hours) {
                    for minute in bits(self.minutes) {
                        let clock = date.at(hour, minute, 0, 0);
                        // A time that the clock skips is moved behind the gap; one that comes twice is taken once.
                        let found = zone.to_ambiguous_timestamp(clock).compatible().ok()?;
                        if found > time {
                            return Some(found);
                        }
                    }
                }
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    fn has_day(&self, date: Date) -> bool {
        let has = |set: u64, value: i8| set >> value & 1 == 1;
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        let wanted = if self.either_day {
            day || weekday
        } else {
            day && weekday
        };
        has(self.months, date.month()) && wanted
    }
}

fn bits(set: u64) -> impl Iterator<Item = i8> {
    (0..60).filter(move |bit| set >> bit & 1 == 1)
}

impl Field {
    /// Parses a list such as `1,5-10,*/15`.
    fn parse(&self, text: &str) -> Result<u64, String> {
        text.split(',')
            .try_fold(0, |set, part| Ok(set | self.range(part)?))
    }

    fn range(&self, text: &str) -> Result<u64, String> {
        let (range, step) = match text.split_once('/') {
            None => (text, 1),
            Some((range, step)) => match step.parse() {
                Ok(step) if step > 0 => (range, step),
                _ => return Err(self.error(text, "the step must be a number above 0")),
            },
        };
        let (first, last) = match range.split_once('-') {
            None if ["*", "?"].contains(&range) => (self.first, self.last),
            None if text.contains('/') => (self.value(range, text)?, self.last),
            None => (self.value(range, text)?, self.value(range, text)?),
            Some((first, last)) => (self.value(first, text)?, self.value(last, text)?),
        };
        if first > last {
            return Err(self.error(text, "the range ends before it begins"));
        }
        Ok((first..=last)
            .step_by(step)
            .fold(0, |set, bit| set | 1 << bit))
    }

    fn value(&self, text: &str, part: &str) -> Result<u32, String> {
        let lower = text.to_lowercase();
        let named = self.names.iter().position(|name| *name == lower);
        let named = named.and_then(|at| u32::try_from(at).ok());
        let value = named
            .map(|at| at + self.first)
            .or_else(|| text.parse().ok());
        value
            .filter(|value| (self.first..=self.last).contains(value))
            .ok_or_else(|| {
                let allowed = format!("use {} to {}", self.first, self.last);
                self.error(part, &allowed)
            })
    }

    fn error(&self, text: &str, why: &str) -> String {
        format!("{} is {text:?}: {why}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn schedules_have_the_times_of_cron() {
        for (schedule, after, want) in [
            ("* * * * *", "2026-01-01T00:00:30Z", "2026-01-01T00:01:00Z"),
            (
                "*/15 * * * *",
                "2026-01-01T00:15:00Z",
                "2026-01-01T00:30:00Z",
            ),
            (
                "0 9-17/4 * * *",
                "2026-01-01T10:00:00Z",
                "2026-01-01T13:00:00Z",
            ),
            (
                "30 8 1,15 * ?",
                "2026-01-02T00:00:00Z",
                "2026-01-15T08:30:00Z",
            ),
            (
                "0 0 * * MON-fri",
                "2026-01-02T00:00:00Z",
                "2026-01-05T00:00:00Z",
            ),
            ("0 0 13 * 5", "2026-01-03T00:00:00Z", "2026-01-09T00:00:00Z"),
            (
                "0 0 29 feb *",
                "2026-01-01T00:00:00Z",
                "2028-02-29T00:00:00Z",
            ),
            (
                "5/20 * * * *",
                "2026-01-01T00:05:00Z",
                "2026-01-01T00:25:00Z",
            ),
            ("@daily", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            (
                "@every 1h30m",
                "2026-01-01T00:00:00Z",
                "2026-01-01T01:30:00Z",
            ),
        ] {
            let parsed = Schedule::parse(schedule).unwrap();
            assert_eq!(
                parsed.next(at(after), &TimeZone::UTC),
                Some(at(want)),
                "{schedule}"
            );
        }
        let never = Schedule::parse("0 0 31 2 *").unwrap();
        assert_eq!(never.next(at("2026-01-01T00:00:00Z"), &TimeZone::UTC), None);
    }

    #[test]
    fn a_schedule_follows_the_clock_of_its_zone() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let daily = Schedule::parse("30 2 * * *").unwrap();
        for (case, after, want) in [
            ("winter", "2026-01-01T12:00:00Z", "2026-01-02T01:30:00Z"),
            ("summer", "2026-07-01T12:00:00Z", "2026-07-02T00:30:00Z"),
            (
                "a skipped hour",
                "2026-03-28T12:00:00Z",
                "2026-03-29T01:30:00Z",
            ),
            (
                "an hour that comes twice",
                "2026-10-25T00:30:00Z",
                "2026-10-26T01:30:00Z",
            ),
        ] {
            assert_eq!(daily.next(at(after), &zone), Some(at(want)), "{case}");
        }
    }

    #[test]
    fn the_latest_time_is_found_without_counting_all() {
        let (start, now) = (at("2020-01-01T00:00:00Z"), at("2026-05-05T05:05:05Z"));
        for (schedule, want) in [
            ("* * * * *", Some("2026-05-05T05:05:00Z")),
            ("0 0 1 1 *", Some("2026-01-01T00:00:00Z")),
            ("@every 1h", Some("2026-05-05T05:00:00Z")),
            ("0 0 31 2 *", None),
        ] {
            let parsed = Schedule::parse(schedule).unwrap();
            let got = parsed.latest(start, now, &TimeZone::UTC);
            assert_eq!(got, want.map(at), "{schedule}");
        }
        let minutely = Schedule::parse("* * * * *").unwrap();
        let just_now = at("2026-05-05T05:05:00Z");
        assert_eq!(minutely.latest(just_now, now, &TimeZone::UTC), None);
    }

    #[test]
    fn errors_name_the_field_and_what_is_allowed() {
        for (schedule, want) in [
            (
                "* * * *",
                "expected exactly 5 fields, found 4: use \"minute hour day month weekday\"",
            ),
            ("60 * * * *", "minute is \"60\": use 0 to 59"),
            ("* * * * 7", "day of week is \"7\": use 0 to 6"),
            (
                "* 5-2 * * *",
                "hour is \"5-2\": the range ends before it begins",
            ),
            (
                "*/0 * * * *",
                "minute is \"*/0\": the step must be a number above 0",
            ),
            ("* * x * *", "day of month is \"x\": use 1 to 31"),
        ] {
            assert_eq!(Schedule::parse(schedule).unwrap_err(), want);
        }
        assert!(
            Schedule::parse("@every soon")
                .unwrap_err()
                .starts_with("\"soon\" is not a duration")
        );
    }
}
