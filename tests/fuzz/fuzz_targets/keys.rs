//! See `tests/decoders`.
#![no_main]

use decoders::target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(target) = target("keys") {
        (target.read)(bytes);
    }
});
