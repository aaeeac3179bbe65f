// SPDX-License-Identifier: Apache-2.0
// An incremental 64-bit hash (FNV-1a) for digests and hash tables: the registry digest, file names
// in a cache. The same input gives the same number on every machine. It is no protection against
// someone who chooses the input.
#ifndef BERTH_BASE_HASH_H
#define BERTH_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

#define BERTH_HASH_START UINT64_C(0xcbf29ce484222325)

// Each returns the hash of what `hash` stood for followed by the argument.
uint64_t berth_hash_bytes(uint64_t hash, const void *data, size_t size);
// Adds the size before the bytes, so that ("ab", "c") and ("a", "bc") differ.
uint64_t berth_hash_str(uint64_t hash, berth_str str);
// Adds the 8 bytes, least significant first.
uint64_t berth_hash_u64(uint64_t hash, uint64_t value);

#endif
