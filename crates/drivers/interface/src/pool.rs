//! Pool of freed memory blocks, which a driver keeps for later allocations.

use std::collections::VecDeque;

/// Blocks of memory of one device: the account of those in use, and those that were freed and are kept. A driver has one pool for
/// each device, behind a lock. Dropping a block returns its memory to the system, which takes place outside of the lock: the functions
/// return the blocks to drop.
///
/// ```
/// use anyfn_driver::Pool;
///
/// let mut pool = Pool::new(1 << 20, 4096);
/// assert!(pool.take(256, |_| true).is_none() && pool.reserve(256).is_ok());
/// assert!(pool.put(256, "block").is_empty());
/// assert_eq!(pool.take(256, |_| true), Some("block"));
/// assert_eq!((pool.statistics().used, pool.statistics().reused), (256, 1));
/// ```
#[derive(Debug)]
pub struct Pool<B> {
    capacity: usize,
    /// The kept blocks with their sizes, the oldest first.
    kept: VecDeque<(usize, B)>,
    now: MemoryStatistics,
}

/// Statistics of the memory that a driver has allocated on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStatistics {
    /// Bytes of the blocks that are in use.
    pub used: usize,
    /// Bytes of the freed blocks that are kept.
    pub kept: usize,
    /// Maximum of `kept`.
    pub limit: usize,
    /// Number of blocks that the driver has allocated so far.
    pub allocated: u64,
    /// Number of allocations so far that a kept block served.
    pub reused: u64,
}

/// Maximum number of kept blocks, so that a search is short.
const BLOCKS: usize = 256;
/// Size in bytes of the smallest block.
const LEAST: usize = 256;
const MIB: usize = 1 << 20;

impl<B> Pool<B> {
    /// Creates the pool of a device that has `capacity` bytes of memory. At most `limit` bytes of freed blocks are kept.
    pub fn new(capacity: usize, limit: usize) -> Pool<B> {
        let now = MemoryStatistics { limit, ..MemoryStatistics::default() };
        Pool { capacity, kept: VecDeque::new(), now }
    }

    /// Returns the limit that the environment variable `ANYFN_DEVICE_POOL_MB` sets, in bytes. By default it is an eighth of
    /// `capacity`, at most 1 GiB.
    pub fn limit_for(capacity: usize) -> usize {
        let set = std::env::var("ANYFN_DEVICE_POOL_MB").ok().and_then(|text| text.parse::<usize>().ok());
        set.map_or((capacity / 8).min(1024 * MIB), |megabytes| megabytes.saturating_mul(MIB))
    }

    /// Returns the size of the block for an allocation of `bytes` bytes: at least 256, and at most a quarter more than `bytes`, so that
    /// allocations of similar sizes share blocks.
    pub fn size_class(bytes: usize) -> usize {
        if bytes <= LEAST {
            return LEAST;
        }
        let quarter = 1_usize << ((bytes - 1).ilog2() - 2);
        bytes.checked_next_multiple_of(quarter).unwrap_or(bytes)
    }

    /// Returns a kept block of exactly `size` bytes for which `is_free` returns true, and which is then in use.
    pub fn take(&mut self, size: usize, is_free: impl Fn(&B) -> bool) -> Option<B> {
        // The newest one is the most likely to be in a cache.
        let at = self.kept.iter().rposition(|(kept, block)| *kept == size && is_free(block))?;
        self.now.kept -= size;
        self.now.used += size;
        self.now.reused += 1;
        self.kept.remove(at).map(|(_, block)| block)
    }

    /// Adds a block of `size` bytes that the driver is about to allocate.
    ///
    /// # Errors
    /// Returns the number of free bytes if the device does not have as many, beside those of the kept blocks.
    pub fn reserve(&mut self, size: usize) -> Result<(), usize> {
        let free = self.capacity.saturating_sub(self.now.used).saturating_sub(self.now.kept);
        if size > free {
            return Err(free);
        }
        self.now.used += size;
        self.now.allocated += 1;
        Ok(())
    }

    /// Removes a block of `size` bytes that the driver could not allocate, or has freed.
    pub fn forget(&mut self, size: usize) {
        self.now.used -= size;
    }

    /// Keeps a freed block. Returns those blocks, the oldest ones, that the limit no longer permits.
    pub fn put(&mut self, size: usize, block: B) -> Vec<B> {
        self.now.used -= size;
        self.now.kept += size;
        self.kept.push_back((size, block));
        let mut over = Vec::new();
        while self.now.kept > self.now.limit || self.kept.len() > BLOCKS {
            let Some((size, block)) = self.kept.pop_front() else { break };
            self.now.kept -= size;
            over.push(block);
        }
        over
    }

    /// Returns all kept blocks, which are then no longer kept.
    pub fn release(&mut self) -> Vec<B> {
        self.now.kept = 0;
        std::mem::take(&mut self.kept).into_iter().map(|(_, block)| block).collect()
    }

    /// Returns the present state.
    pub fn statistics(&self) -> MemoryStatistics {
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_waste_at_most_a_quarter() {
        for bytes in (1..5000).chain([1 << 20, (1 << 20) + 1, usize::MAX]) {
            let size = Pool::<()>::size_class(bytes);
            assert!(size >= bytes && (size <= LEAST || size - bytes <= bytes / 4), "{bytes} -> {size}");
            assert_eq!(Pool::<()>::size_class(size), size);
        }
    }

    #[test]
    fn the_oldest_blocks_go_first() {
        let mut pool = Pool::new(1000, 600);
        for _ in 0..3 {
            pool.reserve(300).unwrap();
        }
        assert_eq!(pool.reserve(300), Err(100));
        assert!(pool.put(300, 1).is_empty() && pool.put(300, 2).is_empty());
        assert_eq!(pool.put(300, 3), [1]);
        assert_eq!(pool.take(256, |_| true), None);
        assert_eq!(pool.take(300, |block| *block != 3), Some(2));
        assert!(pool.put(300, 2).is_empty());
        assert_eq!(pool.take(300, |block| *block == 3), Some(3));
        // What is kept counts as allocated.
        assert_eq!(pool.reserve(500), Err(400));
        assert_eq!(pool.release(), [2]);
        pool.reserve(500).unwrap();
        pool.forget(500);
        let expected = MemoryStatistics { used: 300, kept: 0, limit: 600, allocated: 4, reused: 2 };
        assert_eq!(pool.statistics(), expected);
    }

    #[test]
    fn few_blocks_are_kept() {
        let mut pool = Pool::new(usize::MAX, usize::MAX);
        for block in 0..BLOCKS {
            pool.reserve(1).unwrap();
            assert!(pool.put(1, block).is_empty());
        }
        pool.reserve(1).unwrap();
        assert_eq!(pool.put(1, BLOCKS), [0]);
    }
}
