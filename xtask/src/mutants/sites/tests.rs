use super::*;

fn changes(text: &str) -> Vec<String> {
    let found = find("a.rs", text).unwrap();
    let shown = |site: &Site| format!("{} -> {}", site.original, site.mutated);
    found.iter().map(shown).collect()
}

#[test]
fn what_can_be_changed() {
    for (case, body, want) in [
        ("a comparison", "let _ = a < b;", &["a < b -> a <= b"][..]),
        ("an equality", "let _ = a == b;", &["a == b -> a != b"]),
        (
            "both sides of a condition",
            "let _ = a > b || c;",
            &["a > b -> a >= b", "a > b || c -> a > b && c"],
        ),
        (
            "arithmetic",
            "let _ = a - b * c;",
            &["a - b * c -> a + b * c", "b * c -> b / c"],
        ),
        (
            "assignments",
            "a += b; a = b;",
            &["a += b; -> ;", "a += b -> a -= b", "a = b; -> ;"],
        ),
        ("a negation", "let _ = !a;", &["!a -> a"]),
        (
            "a number",
            "let _ = a[7u8];",
            &["let _ = a[7u8]; -> let _ = a[8u8];"],
        ),
        (
            "a method with an opposite",
            "let _ = a.min(b);",
            &["let _ = a.min(b); -> let _ = a.max(b);"],
        ),
        (
            "a method with a bool",
            "let _ = a.is_empty();",
            &["a.is_empty() -> !a.is_empty()"],
        ),
        (
            "the one of a condition is not negated again",
            "while !a.is_empty() {}",
            &[
                "while !a.is_empty() -> while false",
                "!a.is_empty() -> a.is_empty()",
            ],
        ),
        ("a call whose value is unused", "a.b(c);", &["a.b(c); -> ;"]),
        (
            "a condition",
            "if a {}",
            &["if a -> if true", "if a -> if false"],
        ),
        (
            "a guard",
            "match a { b if c => d, e => f }",
            &["if c -> if true", "if c -> if false"],
        ),
        (
            "a condition that binds names",
            "if let Some(a) = b && c {}",
            &["if let Some(a) = b && c -> if false", "&& c -> && true"],
        ),
        (
            "a pattern",
            "let _ = matches!(a, 1..=2);",
            &["matches!(a, 1..=2) -> !matches!(a, 1..=2)"],
        ),
        ("patterns stay", "match a { 1..=2 => b, _ => c }", &[]),
        ("types and lengths stay", "let _: [u8; 3] = [a; 3];", &[]),
        (
            "constants stay",
            "const A: i64 = 1 + 2; static B: bool = !true;",
            &[],
        ),
        ("macros stay", "assert!(1 < 2);", &[]),
    ] {
        let text = format!("fn f() -> i64 {{\n{body}\n}}");
        assert_eq!(changes(&text), want, "{case}");
    }
}

#[test]
fn functions_return_at_once() {
    for (text, want) in [
        (
            "fn f() -> bool { g() }",
            &["fn f -> return true", "fn f -> return false"][..],
        ),
        ("fn f() -> bool { true }", &["fn f -> return false"]),
        ("fn f() -> Option<i64> { g() }", &["fn f -> return None"]),
        ("fn f() { g() }", &["fn f -> return"]),
        ("fn f() {}", &[]),
        ("fn f() -> i64 { g() }", &[]),
        ("const fn f() -> bool { g() }", &[]),
    ] {
        assert_eq!(changes(text), want, "{text}");
    }
}

#[test]
fn tests_stay() {
    for text in [
        "#[cfg(test)] mod tests { fn f() -> bool { a < b } }",
        "#[test] fn f() { g() }",
        "#[cfg(test)] impl A { fn f() -> bool { a < b } }",
        "impl A { #[cfg(test)] fn f() -> bool { a < b } }",
    ] {
        assert_eq!(changes(text), [""; 0], "{text}");
    }
}

#[test]
fn a_site_is_named_by_its_function() {
    let text = "impl A for B<'_> {\n    fn f() -> i64 {\n        x(1) + x(1)\n    }\n}\n";
    let found = find("a.rs", text).unwrap();
    let places: Vec<String> = found
        .iter()
        .map(|site| format!("{}:{} {}", site.line, site.column, site.key()))
        .collect();
    assert_eq!(
        places,
        [
            "3:11 a.rs, A for B<'_>::f: `x(1) + x(1)` -> `x(2) + x(1)`",
            "3:14 a.rs, A for B<'_>::f: `x(1) + x(1)` -> `x(1) - x(1)`",
            "3:18 a.rs, A for B<'_>::f: `x(1) + x(1)` -> `x(1) + x(2)`",
        ]
    );
    let text = "fn f() -> bool { a < b || a < b }";
    let last = find("a.rs", text).unwrap().pop().unwrap();
    assert_eq!(last.key(), "a.rs, f: `a < b` -> `a <= b` (2)");
}
