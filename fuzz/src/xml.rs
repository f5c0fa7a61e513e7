//! Reads bodies of management requests in XML.

pub fn fuzz_xml(input: &[u8]) {
    let read = peeklock_http::check_atom_body(input);
    if let Err(refusal) = &read {
        assert!(!refusal.is_empty(), "a rejection has no reason");
    }
    if let Ok(tree) = peeklock_web::xml::read(input) {
        assert!(depth(&tree) <= peeklock_web::xml::DEPTH_MAX, "the tree is deeper than the limit");
    } else {
        assert!(read.is_err(), "a text that is not XML was accepted");
    }
}

fn depth(element: &peeklock_web::xml::Element) -> usize {
    1 + element.children.iter().map(depth).max().unwrap_or(0)
}
