//! The query of a list or comparison. What is not known is refused: a filter with a slip in it would otherwise answer
//! with everything.

use std::collections::BTreeMap;

use plimsoll_core::measurement::{Facet, Standing};
use plimsoll_core::scenario::nearest;

use crate::store::Filter;

use super::problem::Problem;

/// Most records of one page.
const LIMIT_MOST: usize = 500;
/// Records of a page unless asked otherwise.
const LIMIT: usize = 100;

/// Longest value, in bytes.
const VALUE: usize = 256;

/// What can be asked of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListQuery {
    pub filter: Filter,
    pub limit: usize,
    /// Where the page before ended.
    pub cursor: Option<i64>,
}

/// What can be asked of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CompareQuery {
    pub by: Facet,
    pub filter: Filter,
}

impl ListQuery {
    pub(super) fn parse(query: Option<&str>) -> Result<Self, Problem> {
        let mut pairs = pairs(query, &["limit", "cursor"])?;
        let limit = pairs.remove("limit").map_or(Ok(LIMIT), |text| {
            let limit = text.parse().ok().filter(|limit| (1..=LIMIT_MOST).contains(limit));
            let hint = format!("give a number from 1 to {LIMIT_MOST}");
            limit.ok_or_else(|| Problem::query("limit", format!("{text:?} is no number of records"), hint))
        })?;
        let cursor = pairs.remove("cursor").map(|text| read_cursor(&text)).transpose()?;
        Ok(Self { filter: filter(pairs)?, limit, cursor })
    }
}

impl CompareQuery {
    pub(super) fn parse(query: Option<&str>) -> Result<Self, Problem> {
        let mut pairs = pairs(query, &["by"])?;
        let all = Facet::GROUPS.map(Facet::as_str).join(", ");
        let text = pairs.remove("by").unwrap_or_default();
        let by = Facet::group(&text).ok_or_else(|| {
            Problem::query("by", format!("{text:?} is nothing to group by"), format!("give one of {all}"))
        })?;
        Ok(Self { by, filter: filter(pairs)? })
    }
}

/// The cursor of the page that begins after the record of this number.
pub(super) fn cursor(seq: i64) -> String {
    format!("c{seq}")
}

fn read_cursor(text: &str) -> Result<i64, Problem> {
    let seq = text.strip_prefix('c').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    seq.and_then(|digits| digits.parse().ok()).ok_or_else(|| {
        Problem::query("cursor", format!("{text:?} is no cursor"), "give the `next` of the page before, unchanged")
    })
}

/// The query's pairs: all keys known, none twice; an empty value is none, as forms send it.
fn pairs(query: Option<&str>, more: &[&str]) -> Result<BTreeMap<String, String>, Problem> {
    let known: Vec<&str> =
        Facet::ALL.iter().map(|facet| facet.as_str()).chain(["lora", "status"]).chain(more.iter().copied()).collect();
    let mut found = BTreeMap::new();
    for (key, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        if !known.contains(&key.as_ref()) {
            let near = nearest(&key, &known).map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
            let hint = format!("{near}there are {}", known.join(", "));
            return Err(Problem::query(&key, "it is no key of this query", hint));
        }
        if value.len() > VALUE || value.contains('\0') {
            return Err(Problem::query(&key, "no record has such a value", format!("give at most {VALUE} characters")));
        }
        if !value.is_empty() && found.insert(key.clone().into_owned(), value.into_owned()).is_some() {
            return Err(Problem::query(&key, "it is given twice", "give one value"));
        }
    }
    Ok(found)
}

fn filter(mut pairs: BTreeMap<String, String>) -> Result<Filter, Problem> {
    let one_of = |key: &str, text: &str, values: &str| {
        Err(Problem::query(key, format!("{text:?} is none of its values"), format!("give one of {values}")))
    };
    let mut filter = Filter::accepted();
    match pairs.remove("status").as_deref() {
        None | Some("accepted") => {}
        Some("quarantined") => filter.standing = Some(Standing::Quarantined),
        Some("all") => filter.standing = None,
        Some(other) => return one_of("status", other, "accepted, quarantined, all"),
    }
    match pairs.remove("lora").as_deref() {
        None => {}
        Some("true") => filter = filter.with(Facet::Training, "lora"),
        Some("false") => filter = filter.with(Facet::Training, "full"),
        Some(other) => return one_of("lora", other, "true, false"),
    }
    for facet in Facet::ALL.iter().copied() {
        if let Some(value) = pairs.remove(facet.as_str()) {
            filter = filter.with(facet, value);
        }
    }
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_filtered_and_cut_into_pages() {
        let query =
            ListQuery::parse(Some("family=llama&gpu=RTX%205070&lora=true&status=all&limit=500&cursor=c17&model="))
                .unwrap();
        assert_eq!((query.limit, query.cursor, query.filter.standing), (500, Some(17), None));
        let expected = Filter::default().with(Facet::Family, "llama").with(Facet::Gpu, "RTX 5070");
        assert_eq!(query.filter, expected.with(Facet::Training, "lora"));
        let query = ListQuery::parse(None).unwrap();
        assert_eq!((query.limit, query.cursor, query.filter), (100, None, Filter::accepted()));
    }

    #[test]
    fn slips_are_named_and_put_right() {
        let long = format!("gpu={}", "x".repeat(300));
        for (query, says) in [
            ("famly=llama", "did you mean `family`"),
            ("by=gpu", "no key of this query"),
            ("limit=0", "from 1 to 500"),
            ("limit=501", "from 1 to 500"),
            ("limit=-1", "from 1 to 500"),
            ("limit=1e2", "from 1 to 500"),
            ("cursor=17", "`next` of the page before"),
            ("cursor=c-1", "`next` of the page before"),
            ("cursor=c99999999999999999999", "`next` of the page before"),
            ("status=good", "accepted, quarantined, all"),
            ("lora=16", "true, false"),
            ("gpu=a&gpu=b", "given twice"),
            ("gpu=%00", "no record has"),
            (&long, "no record has"),
            ("gpu=a'%20OR%201=1;--&x", "no key"),
        ] {
            let problem = ListQuery::parse(Some(query)).unwrap_err();
            assert!(format!("{problem:?}").contains(says), "{query}: {problem:?}");
        }
        let problem = CompareQuery::parse(None).unwrap_err();
        assert!(format!("{problem:?}").contains("family, model, gpu"), "{problem:?}");
        assert_eq!(CompareQuery::parse(Some("by=gpu&torch=2.11")).unwrap().by, Facet::Gpu);
    }

    #[test]
    fn a_cursor_is_read_back() {
        assert_eq!(read_cursor(&cursor(i64::MAX)).unwrap(), i64::MAX);
    }
}
