//! Tables that were large and are nearly empty give their memory back.

use std::hash::{BuildHasher, Hash};

use hashbrown::HashMap;

/// Tables of this size or less keep it.
const SMALL: usize = 1_024;

/// Whether a table of this capacity should shrink to twice its length. It is a quarter full or less, so that this costs a
/// constant time per removal.
pub(crate) fn is_excessive(length: usize, capacity: usize) -> bool {
    capacity > SMALL && length < capacity / 4
}

/// Call it after a removal.
pub(crate) fn shrink_map<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if is_excessive(map.len(), map.capacity()) {
        map.shrink_to(2 * map.len());
    }
}

/// Call it after a removal.
pub(crate) fn shrink_list<T>(list: &mut Vec<T>) {
    if is_excessive(list.len(), list.capacity()) {
        list.shrink_to(2 * list.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_shrinks_when_it_is_nearly_empty() {
        let mut map: HashMap<usize, usize> = (0..50_000).map(|key| (key, key)).collect();
        let mut list: Vec<usize> = (0..50_000).collect();
        for key in 0..49_990 {
            map.remove(&key);
            shrink_map(&mut map);
            list.pop();
            shrink_list(&mut list);
        }
        assert!(
            map.len() == 10 && map.capacity() <= 2 * SMALL,
            "{}",
            map.capacity()
        );
        assert!(
            list.len() == 10 && list.capacity() <= SMALL,
            "{}",
            list.capacity()
        );
    }
}
