// SPDX-License-Identifier: Apache-2.0
// FNV-1a, 64 bits: xor a byte, multiply by the prime. Numbers go in byte by byte, so that the
// result does not depend on the machine's byte order.
#include "base/hash.h"

#define PRIME UINT64_C(0x100000001b3)

uint64_t berth_hash_bytes(uint64_t hash, const void *data, size_t size) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; ++i) {
        hash = (hash ^ bytes[i]) * PRIME;
    }
    return hash;
}

uint64_t berth_hash_u64(uint64_t hash, uint64_t value) {
    for (unsigned shift = 0; shift < 64; shift += 8) {
        hash = (hash ^ (value >> shift & 0xff)) * PRIME;
    }
    return hash;
}

uint64_t berth_hash_str(uint64_t hash, berth_str str) {
    return berth_hash_bytes(berth_hash_u64(hash, str.size), str.data, str.size);
}
