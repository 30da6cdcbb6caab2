//! Finds inline scripts and styles in a page, so that the policy can name their hashes.

/// What a page carries inline, in order of appearance. Line ends are as a browser hashes them: CR LF counts as LF.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Inline {
    /// The text of every `<script>` without `src`.
    pub(crate) scripts: Vec<String>,
    /// The text of every `<style>`.
    pub(crate) styles: Vec<String>,
}

/// Reads a page. Comments are passed over; a tag that never ends, ends the search.
pub(crate) fn inline(html: &str) -> Inline {
    let lower = html.to_ascii_lowercase();
    let mut found = Inline::default();
    let mut at = 0;
    while let Some(start) = find(&lower, "<", at) {
        let tag = lower.get(start + 1..).unwrap_or_default();
        if tag.starts_with("!--") {
            let Some(end) = find(&lower, "-->", start) else { break };
            at = end + 3;
            continue;
        }
        if !tag.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/') {
            at = start + 1;
            continue;
        }
        let Some(body) = tag_end(&lower, start) else { break };
        at = body;
        let name: String = tag.chars().take_while(|c| !c.is_whitespace() && !matches!(c, '>' | '/')).collect();
        let (list, close) = match name.as_str() {
            "script" => (&mut found.scripts, "</script"),
            "style" => (&mut found.styles, "</style"),
            _ => continue,
        };
        let Some(end) = find(&lower, close, body) else { break };
        let attributes = lower.get(start + 1 + name.len()..body).unwrap_or_default();
        if !has_attribute(attributes, "src") {
            list.push(html.get(body..end).unwrap_or_default().replace("\r\n", "\n"));
        }
        at = end;
    }
    found
}

fn find(text: &str, what: &str, from: usize) -> Option<usize> {
    text.get(from..)?.find(what).map(|i| i + from)
}

/// The index after the `>` that closes the tag at `start`; one inside quotes does not.
fn tag_end(text: &str, start: usize) -> Option<usize> {
    let mut quote = None;
    for (i, c) in text.get(start..)?.char_indices() {
        match quote {
            Some(q) if c == q => quote = None,
            Some(_) => {}
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c == '>' => return Some(start + i + 1),
            None => {}
        }
    }
    None
}

/// Whether a tag's attribute text (lower case) has the attribute; text inside a quoted value is not one.
fn has_attribute(attributes: &str, name: &str) -> bool {
    let mut bare = String::with_capacity(attributes.len());
    let mut quote = None;
    for c in attributes.chars() {
        match quote {
            Some(q) if c == q => quote = None,
            Some(_) => {}
            None if c == '"' || c == '\'' => quote = Some(c),
            None => bare.push(c),
        }
    }
    bare.split(|c: char| c.is_whitespace() || c == '>' || c == '/').any(|word| word.split('=').next() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_what_is_inline_and_leaves_what_has_a_source() {
        let page = r#"<head><script src="/theme.js"></script>
            <SCRIPT type="module">import a from '/a.js';</SCRIPT><script>2 > 1</script></head>"#;
        assert_eq!(inline(page).scripts, ["import a from '/a.js';", "2 > 1"]);
    }

    #[test]
    fn attribute_values_do_not_confuse_it() {
        let page =
            r#"<script data-x="src=1 > 0" type=module>a</script><script src=b></script><scripture>c</scripture>"#;
        assert_eq!(inline(page).scripts, ["a"]);
    }

    #[test]
    fn scripts_are_not_read_as_markup_nor_text_as_tags() {
        let page = "<script>if (a<b) '<style>'</script><p>1 < 2, don't</p><style>p{}</style>";
        let found = inline(page);
        assert_eq!((found.scripts, found.styles), (vec!["if (a<b) '<style>'".into()], vec!["p{}".into()]));
    }

    #[test]
    fn comments_are_passed_over() {
        assert_eq!(inline("<!-- <script>no</script> --><script>yes</script>").scripts, ["yes"]);
        assert!(inline("<!-- <script>no</script>").scripts.is_empty());
    }

    #[test]
    fn line_ends_are_those_a_browser_hashes() {
        assert_eq!(inline("<style>\r\na{}\r\n</style>").styles, ["\na{}\n"]);
    }

    #[test]
    fn broken_pages_end_the_search() {
        for page in ["<script", "<script>", "<script>x", "<", "<script x=\"", "é<script>é"] {
            assert!(inline(page).scripts.is_empty(), "{page}");
        }
    }
}
