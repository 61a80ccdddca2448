//! Health checks, in the text form of kube-scheduler's.

use http::StatusCode;

/// The name of a check and its result; the error says why it fails.
pub type Check = (&'static str, Result<(), String>);

/// The query of a health path.
#[derive(Debug, Default)]
pub(super) struct HealthQuery {
    pub(super) verbose: bool,
    pub(super) exclude: Vec<String>,
}

impl HealthQuery {
    /// From a query such as `verbose&exclude=ping`.
    pub(super) fn new(query: &str) -> Self {
        let mut parsed = Self::default();
        for pair in query.split('&') {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("verbose", _) => parsed.verbose = true,
                ("exclude", name) => parsed.exclude.push(name.to_owned()),
                _ => {}
            }
        }
        parsed
    }
}

/// All checks of one endpoint.
pub(super) fn report(
    endpoint: &str,
    checks: &[Check],
    query: &HealthQuery,
) -> (StatusCode, String) {
    let mut failed = Vec::new();
    let mut text = String::new();
    for (name, result) in checks {
        if query.exclude.iter().any(|excluded| excluded == name) {
            text += &format!("[+]{name} excluded: ok\n");
            continue;
        }
        match result {
            Ok(()) => text += &format!("[+]{name} ok\n"),
            Err(why) => {
                failed.push(*name);
                text += &format!("[-]{name} failed: {why}\n");
            }
        }
    }
    let known = |name: &&String| checks.iter().any(|(known, _)| known == name);
    let unknown: Vec<&String> = query.exclude.iter().filter(|name| !known(name)).collect();
    if !unknown.is_empty() {
        text +=
            &format!("warn: some health checks cannot be excluded: no matches for {unknown:?}\n");
    }
    if !failed.is_empty() {
        tracing::debug!("{endpoint} check failed: {}", failed.join(","));
        return (
            StatusCode::INTERNAL_SERVER_ERROR,
            text + &format!("{endpoint} check failed\n"),
        );
    }
    if query.verbose {
        return (StatusCode::OK, text + &format!("{endpoint} check passed\n"));
    }
    (StatusCode::OK, "ok".to_owned())
}

/// The report with a line for each warning.
pub(super) fn with_warnings(mut text: String, warnings: &[String]) -> String {
    for warning in warnings {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text += &format!("warn: {warning}\n");
    }
    text
}

/// One check by name.
pub(super) fn report_one(name: &str, checks: &[Check]) -> (StatusCode, String) {
    match checks.iter().find(|(known, _)| *known == name) {
        Some((_, Ok(()))) => (StatusCode::OK, "ok".to_owned()),
        Some((_, Err(why))) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("internal server error: {why}\n"),
        ),
        None => (StatusCode::NOT_FOUND, format!("there is no check {name}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks(second: Result<(), String>) -> Vec<Check> {
        vec![("ping", Ok(())), ("shutdown", second)]
    }

    #[test]
    fn checks_are_reported_as_kubernetes_does() {
        let bad = || checks(Err("it is stopping".to_owned()));
        let all = "[+]ping ok\n[+]shutdown ok\nreadyz check passed\n";
        let failed = "[+]ping ok\n[-]shutdown failed: it is stopping\nreadyz check failed\n";
        let excluded = "[+]ping ok\n[+]shutdown excluded: ok\nreadyz check passed\n";
        for (case, checks, query, code, text) in [
            ("good", checks(Ok(())), "", 200, "ok"),
            ("good, verbose", checks(Ok(())), "verbose", 200, all),
            (
                "good, verbose with a value",
                checks(Ok(())),
                "verbose=1",
                200,
                all,
            ),
            ("bad", bad(), "", 500, failed),
            ("bad, verbose", bad(), "verbose", 500, failed),
            ("left out", bad(), "exclude=shutdown&verbose", 200, excluded),
            ("left out, short", bad(), "exclude=shutdown", 200, "ok"),
        ] {
            let report = report("readyz", &checks, &HealthQuery::new(query));
            assert_eq!((report.0.as_u16(), &*report.1), (code, text), "{case}");
        }
    }

    #[test]
    fn warnings_follow_the_report() {
        for (report, warnings, want) in [
            ("ok", vec![], "ok"),
            ("ok", vec!["a", "b"], "ok\nwarn: a\nwarn: b\n"),
            (
                "readyz check failed\n",
                vec!["a"],
                "readyz check failed\nwarn: a\n",
            ),
        ] {
            let warnings: Vec<String> = warnings.into_iter().map(str::to_owned).collect();
            assert_eq!(with_warnings(report.to_owned(), &warnings), want);
        }
    }

    #[test]
    fn a_check_by_name() {
        let checks = checks(Err("why".to_owned()));
        for (name, code) in [("ping", 200), ("shutdown", 500), ("other", 404)] {
            assert_eq!(report_one(name, &checks).0.as_u16(), code, "{name}");
        }
    }
}
