//! The SuperSlab allocator of hksim, generic over the memory it lives in
