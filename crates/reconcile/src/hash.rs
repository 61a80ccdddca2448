//! FNV-1a: a small hash that stays the same from one build to the next, for names of objects.

use std::hash::Hasher;

use fnv::FnvHasher;

pub fn fnv1a(bytes: &[u8]) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_published_vectors() {
        for (text, want) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(super::fnv1a(text.as_bytes()), want, "{text}");
        }
    }
}
