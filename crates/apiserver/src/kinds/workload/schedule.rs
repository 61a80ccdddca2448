//! The schedule of a cron job: checks its syntax. The messages are those that the real server shows.

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const DESCRIPTORS: [&str; 7] = [
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
];

/// The values that one field allows.
struct FieldBounds {
    least: i64,
    most: i64,
    names: &'static [&'static str],
}

const fn numbers(least: i64, most: i64) -> FieldBounds {
    let names = &[];
    FieldBounds { least, most, names }
}

/// Minute, hour, day of the month, month, day of the week.
const FIELDS: [FieldBounds; 5] = [
    numbers(0, 59),
    numbers(0, 23),
    numbers(1, 31),
    FieldBounds {
        names: &MONTHS,
        ..numbers(1, 12)
    },
    FieldBounds {
        names: &DAYS,
        ..numbers(0, 6)
    },
];

/// What is wrong with a schedule that is not empty.
pub(super) fn problem(schedule: &str) -> Option<String> {
    if schedule.contains("TZ") {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        return Some(detail.to_owned());
    }
    if schedule.starts_with('@') {
        let known = DESCRIPTORS.contains(&schedule) || schedule.starts_with("@every ");
        return (!known).then(|| format!("unrecognized descriptor: {schedule}"));
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let (count, found) = (fields.len(), fields.join(" "));
        return Some(format!(
            "expected exactly 5 fields, found {count}: [{found}]"
        ));
    }
    let parts = fields.iter().zip(&FIELDS);
    parts
        .flat_map(|(field, bounds)| field.split(',').map(move |part| (part, bounds)))
        .filter(|(part, _)| !part.is_empty())
        .find_map(|(part, bounds)| check_range(part, bounds).err())
}

/// `*`, `5`, `1-5` or a name, each with an optional step such as `/2`.
fn check_range(part: &str, bounds: &FieldBounds) -> Result<(), String> {
    let (range, step) = match part.split('/').collect::<Vec<_>>()[..] {
        [range] => (range, None),
        [range, step] => (range, Some(step)),
        _ => return Err(format!("too many slashes: {part}")),
    };
    let (start, mut end) = match range.split('-').collect::<Vec<_>>()[..] {
        ["*" | "?", ..] => (bounds.least, bounds.most),
        [one] => {
            let one = value(one, bounds)?;
            (one, one)
        }
        [start, end] => (value(start, bounds)?, value(end, bounds)?),
        _ => return Err(format!("too many hyphens: {part}")),
    };
    if let Some(step) = step {
        if start == end {
            end = bounds.most;
        }
        if number(step)? == 0 {
            return Err(format!("step of range should be a positive number: {part}"));
        }
    }
    let (least, most) = (bounds.least, bounds.most);
    if start < least {
        return Err(format!(
            "beginning of range ({start}) below minimum ({least}): {part}"
        ));
    }
    if end > most {
        return Err(format!(
            "end of range ({end}) above maximum ({most}): {part}"
        ));
    }
    if start > end {
        return Err(format!(
            "beginning of range ({start}) beyond end of range ({end}): {part}"
        ));
    }
    Ok(())
}

fn value(text: &str, bounds: &FieldBounds) -> Result<i64, String> {
    let mut names = (bounds.least..).zip(bounds.names);
    match names.find(|(_, name)| name.eq_ignore_ascii_case(text)) {
        Some((number, _)) => Ok(number),
        None => number(text),
    }
}

fn number(text: &str) -> Result<i64, String> {
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => Ok(number),
        Err(_) => Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_schedule_is_explained() {
        for (schedule, want) in [
            ("*/5 * * * *", None),
            ("0,30 8-18/2 1 jan-jun MON", None),
            ("5/15 0 ? * 0", None),
            ("@daily", None),
            ("@every 1h", None),
            ("@sometimes", Some("unrecognized descriptor: @sometimes")),
            ("nope", Some("expected exactly 5 fields, found 1: [nope]")),
            (
                "60 * * * *",
                Some("end of range (60) above maximum (59): 60"),
            ),
            (
                "* * 0 * *",
                Some("beginning of range (0) below minimum (1): 0"),
            ),
            (
                "* 5-2 * * *",
                Some("beginning of range (5) beyond end of range (2): 5-2"),
            ),
            ("1-2-3 * * * *", Some("too many hyphens: 1-2-3")),
            ("1/2/3 * * * *", Some("too many slashes: 1/2/3")),
            (
                "*/0 * * * *",
                Some("step of range should be a positive number: */0"),
            ),
            (
                "a * * * *",
                Some("failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"),
            ),
            (
                "TZ=UTC 0 0 * * *",
                Some("cannot use TZ or CRON_TZ in schedule, use timeZone field instead"),
            ),
        ] {
            assert_eq!(problem(schedule).as_deref(), want, "{schedule}");
        }
    }
}
