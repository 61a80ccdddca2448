//! Finds what can be changed in a source file. Constants, patterns, types, macros and tests stay as they are.

use std::collections::HashMap;
use std::ops::Range;

use anyhow::{Context, Result};
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Attribute, BinOp, Block, Expr, Lit, ReturnType, Signature, Stmt, Type, UnOp, token::Brace,
};

/// One change of one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Site {
    /// From the root of the repository.
    pub(super) file: String,
    pub(super) line: usize,
    pub(super) column: usize,
    /// `Type::function`
    pub(super) function: String,
    /// The place as a reader sees it, in one line.
    pub(super) original: String,
    pub(super) mutated: String,
    /// Counts equal changes of a function from 1.
    pub(super) occurrence: usize,
    pub(super) edit: Edit,
}

impl Site {
    /// Names the change as long as its function and its text stay, wherever they move in their file.
    pub(super) fn key(&self) -> String {
        let occurrence = match self.occurrence {
            1 => String::new(),
            more => format!(" ({more})"),
        };
        format!(
            "{}, {}: `{}` -> `{}`{occurrence}",
            self.file, self.function, self.original, self.mutated
        )
    }
}

/// Ranges are bytes of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Edit {
    /// Another expression replaces this one.
    Expression { range: Range<usize>, text: String },
    /// A statement is left out.
    Statement { range: Range<usize> },
    /// A function returns at its start.
    Return { at: usize, value: &'static str },
    /// A condition that binds names is never met.
    Never { at: usize },
}

/// Methods and those that take the same arguments but answer otherwise.
const SWAPPED: &[(&str, &str)] = &[
    ("all", "any"),
    ("any", "all"),
    ("first", "last"),
    ("is_err", "is_ok"),
    ("is_none", "is_some"),
    ("is_ok", "is_err"),
    ("is_some", "is_none"),
    ("last", "first"),
    ("max", "min"),
    ("max_by", "min_by"),
    ("max_by_key", "min_by_key"),
    ("min", "max"),
    ("min_by", "max_by"),
    ("min_by_key", "max_by_key"),
    ("saturating_add", "saturating_sub"),
    ("saturating_sub", "saturating_add"),
    ("wrapping_add", "wrapping_sub"),
    ("wrapping_sub", "wrapping_add"),
];

/// Methods that return a bool.
const NEGATED: &[&str] = &[
    "contains",
    "contains_key",
    "ends_with",
    "is_empty",
    "is_none_or",
    "is_some_and",
    "starts_with",
];

/// In the order of the source.
pub(super) fn find(file: &str, text: &str) -> Result<Vec<Site>> {
    let parsed = syn::parse_file(text).with_context(|| format!("cannot parse {file}"))?;
    let mut finder = Finder {
        file,
        text,
        path: Vec::new(),
        decided: None,
        found: Vec::new(),
    };
    finder.visit_file(&parsed);
    let mut found = finder.found;
    found.sort_by_key(|site| (site.line, site.column));
    let mut counts: HashMap<String, usize> = HashMap::new();
    for site in &mut found {
        let count = counts.entry(site.key()).or_default();
        *count += 1;
        site.occurrence = *count;
    }
    Ok(found)
}

struct Finder<'a> {
    file: &'a str,
    text: &'a str,
    /// The names of the items around.
    path: Vec<String>,
    /// This whole expression is negated or decided already: its own negation would add nothing.
    decided: Option<Range<usize>>,
    found: Vec<Site>,
}

fn range(spanned: &impl Spanned) -> Range<usize> {
    spanned.span().byte_range()
}

impl<'a> Finder<'a> {
    fn slice(&self, range: Range<usize>) -> &'a str {
        &self.text[range]
    }

    fn of(&self, spanned: &impl Spanned) -> &'a str {
        self.slice(range(spanned))
    }

    fn add(&mut self, span: Span, original: String, mutated: String, edit: Edit) {
        let start = span.start();
        self.found.push(Site {
            file: self.file.to_owned(),
            line: start.line,
            column: start.column + 1,
            function: self.path.join("::"),
            original,
            mutated,
            occurrence: 1,
            edit,
        });
    }

    /// Replaces an expression by a text. A reader sees the line with the part of it that changes.
    fn replace_in_line(&mut self, expr: &Expr, part: Span, new_part: &str, text: String) {
        let bytes = part.byte_range();
        let start = self.text[..bytes.start].rfind('\n').map_or(0, |it| it + 1);
        let end = self.text[bytes.end..].find('\n');
        let end = end.map_or(self.text.len(), |it| it + bytes.end);
        let (before, after) = (
            self.slice(start..bytes.start).trim_start(),
            self.slice(bytes.end..end).trim_end(),
        );
        let original = format!("{before}{}{after}", self.slice(bytes));
        let mutated = format!("{before}{new_part}{after}");
        let range = range(expr);
        self.add(part, original, mutated, Edit::Expression { range, text });
    }

    /// `if`, `while` or a guard.
    fn decide(&mut self, keyword: &str, condition: &Expr, values: &[&str]) {
        if has_let(condition) {
            let span = condition.span();
            let shown = start_of(self.of(condition));
            let at = span.byte_range().start;
            self.add(
                span,
                format!("{keyword} {shown}"),
                format!("{keyword} false"),
                Edit::Never { at },
            );
            self.decide_links(condition);
            return;
        }
        self.decide_plain(keyword, condition, values);
    }

    /// The conditions between `&&` that bind no names.
    fn decide_links(&mut self, condition: &Expr) {
        if let Expr::Binary(chain) = condition {
            for side in [&*chain.left, &*chain.right] {
                if has_let(side) {
                    self.decide_links(side);
                } else {
                    self.decide_plain("&&", side, &["true"]);
                }
            }
        }
    }

    fn decide_plain(&mut self, keyword: &str, condition: &Expr, values: &[&str]) {
        let shown = start_of(self.of(condition));
        for value in values {
            let edit = Edit::Expression {
                range: range(condition),
                text: (*value).to_owned(),
            };
            self.add(
                condition.span(),
                format!("{keyword} {shown}"),
                format!("{keyword} {value}"),
                edit,
            );
        }
        self.decided = Some(range(condition));
    }

    fn function(&mut self, signature: &Signature, block: &Block) {
        let span = signature.ident.span();
        let has_one_value = block.stmts.len() == 1;
        let only = block.stmts.first().map(|it| self.of(it));
        for value in returned(&signature.output) {
            let is_same = has_one_value && only == Some(value);
            if is_same || block.stmts.is_empty() {
                continue;
            }
            let Brace { span: braces } = block.brace_token;
            let at = braces.open().byte_range().end;
            let original = format!("fn {}", signature.ident);
            let mutated = format!("return {value}");
            let mutated = mutated.trim_end().to_owned();
            self.add(span, original, mutated, Edit::Return { at, value });
        }
        self.visit_block(block);
    }

    /// Without constants: their changes cannot be selected at run time.
    fn inside(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.path.push(name);
        visit(self);
        self.path.pop();
    }
}

/// What a function of this type may return at once.
fn returned(output: &ReturnType) -> &'static [&'static str] {
    let ReturnType::Type(_, output) = output else {
        return &[""];
    };
    let Type::Path(path) = &**output else {
        return &[];
    };
    let name = path.path.segments.last().map(|it| it.ident.to_string());
    match name.as_deref() {
        Some("bool") => &["true", "false"],
        Some("Option") => &["None"],
        Some("Vec") => &["Vec::new()"],
        _ => &[],
    }
}

fn has_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        path.is_ident("test")
            || path.is_ident("cfg")
                && attribute
                    .parse_args::<syn::Path>()
                    .is_ok_and(|condition| condition.is_ident("test"))
    })
}

fn swapped_operator(operator: &BinOp) -> Option<&'static str> {
    Some(match operator {
        BinOp::Lt(_) => "<=",
        BinOp::Le(_) => "<",
        BinOp::Gt(_) => ">=",
        BinOp::Ge(_) => ">",
        BinOp::Eq(_) => "!=",
        BinOp::Ne(_) => "==",
        BinOp::And(_) => "||",
        BinOp::Or(_) => "&&",
        BinOp::Add(_) => "-",
        BinOp::Sub(_) => "+",
        BinOp::Mul(_) => "/",
        BinOp::Div(_) => "*",
        BinOp::Rem(_) => "/",
        BinOp::BitAnd(_) => "|",
        BinOp::BitOr(_) => "&",
        BinOp::Shl(_) => ">>",
        BinOp::Shr(_) => "<<",
        BinOp::AddAssign(_) => "-=",
        BinOp::SubAssign(_) => "+=",
        BinOp::MulAssign(_) => "/=",
        BinOp::DivAssign(_) => "*=",
        BinOp::BitAndAssign(_) => "|=",
        BinOp::BitOrAssign(_) => "&=",
        _ => return None,
    })
}

/// The next number; a number of another base stays readable enough in base ten.
fn next_number(literal: &Lit) -> Option<String> {
    match literal {
        Lit::Int(number) => {
            let value: u128 = number.base10_parse().ok()?;
            Some(format!("{}{}", value.checked_add(1)?, number.suffix()))
        }
        Lit::Float(number) => {
            let value: f64 = number.base10_parse().ok()?;
            Some(format!("{:?}{}", value + 1.0, number.suffix()))
        }
        _ => None,
    }
}

/// As much of an expression as a reader needs to find it.
const SHOWN: usize = 40;

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn start_of(text: &str) -> String {
    let text = words(text);
    match text.char_indices().nth(SHOWN) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

fn end_of(text: &str) -> String {
    let text = words(text);
    match text.char_indices().rev().nth(SHOWN) {
        None => text,
        Some((start, first)) => format!("…{}", &text[start + first.len_utf8()..]),
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_path_arguments(&mut self, _: &'ast syn::PathArguments) {}
    fn visit_generics(&mut self, _: &'ast syn::Generics) {}
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_macro(&mut self, _: &'ast syn::Macro) {}

    fn visit_expr_repeat(&mut self, it: &'ast syn::ExprRepeat) {
        self.visit_expr(&it.expr);
    }

    fn visit_item_mod(&mut self, it: &'ast syn::ItemMod) {
        if !is_test(&it.attrs) {
            self.inside(it.ident.to_string(), |this| visit::visit_item_mod(this, it));
        }
    }

    fn visit_item_trait(&mut self, it: &'ast syn::ItemTrait) {
        self.inside(it.ident.to_string(), |this| {
            visit::visit_item_trait(this, it)
        });
    }

    fn visit_item_impl(&mut self, it: &'ast syn::ItemImpl) {
        let of_trait = it.trait_.as_ref().and_then(|(_, path, _)| {
            let name = path.segments.last()?.ident.to_string();
            Some(name)
        });
        // Its text is for developers.
        if is_test(&it.attrs) || of_trait.as_deref() == Some("Debug") {
            return;
        }
        let name = words(self.of(&*it.self_ty));
        let name = match of_trait {
            Some(of_trait) => format!("{of_trait} for {name}"),
            None => name,
        };
        self.inside(name, |this| visit::visit_item_impl(this, it));
    }

    fn visit_item_fn(&mut self, it: &'ast syn::ItemFn) {
        if !is_test(&it.attrs) && it.sig.constness.is_none() {
            let name = it.sig.ident.to_string();
            self.inside(name, |this| this.function(&it.sig, &it.block));
        }
    }

    fn visit_impl_item_fn(&mut self, it: &'ast syn::ImplItemFn) {
        if !is_test(&it.attrs) && it.sig.constness.is_none() {
            let name = it.sig.ident.to_string();
            self.inside(name, |this| this.function(&it.sig, &it.block));
        }
    }

    fn visit_trait_item_fn(&mut self, it: &'ast syn::TraitItemFn) {
        if let Some(block) = &it.default {
            let name = it.sig.ident.to_string();
            self.inside(name, |this| this.function(&it.sig, block));
        }
    }

    fn visit_stmt(&mut self, it: &'ast Stmt) {
        let is_deletable = |expr: &Expr| {
            matches!(
                expr,
                Expr::Call(_) | Expr::MethodCall(_) | Expr::Assign(_) | Expr::Binary(_)
            )
        };
        if let Stmt::Expr(expr, Some(_)) = it
            && is_deletable(expr)
        {
            let original = format!("{};", start_of(self.of(expr)));
            let edit = Edit::Statement { range: range(it) };
            self.add(it.span(), original, ";".to_owned(), edit);
        }
        visit::visit_stmt(self, it);
    }

    fn visit_expr_if(&mut self, it: &'ast syn::ExprIf) {
        self.decide("if", &it.cond, &["true", "false"]);
        visit::visit_expr_if(self, it);
    }

    fn visit_expr_while(&mut self, it: &'ast syn::ExprWhile) {
        // A condition that is always met only wastes time until it is caught.
        self.decide("while", &it.cond, &["false"]);
        visit::visit_expr_while(self, it);
    }

    fn visit_arm(&mut self, it: &'ast syn::Arm) {
        if let Some((_, guard)) = &it.guard {
            self.decide("if", guard, &["true", "false"]);
        }
        visit::visit_arm(self, it);
    }

    fn visit_expr_binary(&mut self, it: &'ast syn::ExprBinary) {
        let operator = swapped_operator(&it.op);
        if let Some(operator) = operator.filter(|_| !has_let(&it.left) && !has_let(&it.right)) {
            let (left, right) = (self.of(&*it.left), self.of(&*it.right));
            let compares = matches!(operator, "<=" | ">=" | "==" | "!=");
            // Assigned places stand without brackets.
            let text = match operator.ends_with('=') && !compares {
                true => format!("{left} {operator} {right}"),
                false => format!("({left}) {operator} ({right})"),
            };
            let (shown_left, shown_right) = (end_of(left), start_of(right));
            let range = range(it);
            self.add(
                it.op.span(),
                format!("{shown_left} {} {shown_right}", self.of(&it.op)),
                format!("{shown_left} {operator} {shown_right}"),
                Edit::Expression { range, text },
            );
        }
        visit::visit_expr_binary(self, it);
    }

    fn visit_expr_unary(&mut self, it: &'ast syn::ExprUnary) {
        let operand = self.of(&*it.expr);
        let is_number = matches!(&*it.expr, Expr::Lit(_));
        if matches!(it.op, UnOp::Not(_)) || matches!(it.op, UnOp::Neg(_)) && !is_number {
            let edit = Edit::Expression {
                range: range(it),
                text: operand.to_owned(),
            };
            let original = start_of(self.of(it));
            self.add(it.span(), original, start_of(operand), edit);
            self.decided = Some(range(&*it.expr));
        }
        visit::visit_expr_unary(self, it);
    }

    fn visit_expr_method_call(&mut self, it: &'ast syn::ExprMethodCall) {
        let name = it.method.to_string();
        let whole = range(it);
        let method = range(&it.method);
        let expr = Expr::MethodCall(it.clone());
        if let Some((_, other)) = SWAPPED.iter().find(|(known, _)| *known == name) {
            let text = format!(
                "{}{other}{}",
                self.slice(whole.start..method.start),
                self.slice(method.end..whole.end)
            );
            self.replace_in_line(&expr, it.method.span(), other, text);
        }
        if NEGATED.contains(&&*name) && self.decided.as_ref() != Some(&whole) {
            let text = format!("!{}", self.of(it));
            let original = end_of(self.of(it));
            let mutated = format!("!{original}");
            self.add(
                it.method.span(),
                original,
                mutated,
                Edit::Expression { range: whole, text },
            );
        }
        visit::visit_expr_method_call(self, it);
    }

    fn visit_expr_macro(&mut self, it: &'ast syn::ExprMacro) {
        let whole = range(it);
        if it.mac.path.is_ident("matches") && self.decided.as_ref() != Some(&whole) {
            let original = start_of(self.of(it));
            let text = format!("!{}", self.of(it));
            let mutated = format!("!{original}");
            self.add(
                it.span(),
                original,
                mutated,
                Edit::Expression { range: whole, text },
            );
        }
    }

    fn visit_expr_lit(&mut self, it: &'ast syn::ExprLit) {
        if let Some(next) = next_number(&it.lit) {
            let expr = Expr::Lit(it.clone());
            self.replace_in_line(&expr, it.lit.span(), &next, next.clone());
        }
    }
}

#[cfg(test)]
mod tests;
