//! Replays the committed corpus, which contains every input that ever failed.

use std::path::Path;

use peeklock_fuzz::Target;

#[test]
fn no_input_of_the_corpus_fails() {
    for target in [Target::Codec, Target::Connection, Target::Filter, Target::Json, Target::Xml] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name());
        let mut input_count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            target.run(&std::fs::read(entry.unwrap().path()).unwrap());
            input_count += 1;
        }
        assert!(input_count > 20, "the corpus of {} is nearly empty", target.name());
    }
}
